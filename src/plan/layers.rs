//! The layers of a launch: recipe, patches, entries of the matrix, axes and overrides.

use crate::config::engine::Patch;
use crate::config::forms::OrderedMap;
use crate::config::matrix::Override;
use crate::config::template::Template;
use crate::plan::grid::GridPoint;
use crate::plan::resolve::ResolveContext;

/// The layers that are merged at one grid point.
pub(crate) struct Layers<'a> {
    pub(crate) site: &'a ResolveContext<'a>,
    pub(crate) point: &'a GridPoint,
    /// Patches of the recipe's versions and variant that apply, in order.
    pub(crate) patches: Vec<&'a Patch>,
    pub(crate) overrides: Vec<&'a Override>,
    /// Returns the value of a placeholder.
    pub(crate) fill: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Layers<'a> {
    /// The value of the last patch that sets one.
    pub(crate) fn patched<T>(&self, read: impl Fn(&'a Patch) -> Option<T>) -> Option<T> {
        self.patches.iter().rev().find_map(|patch| read(patch))
    }

    /// The value of the last override that sets one.
    pub(crate) fn overridden<T>(&self, read: impl Fn(&'a Override) -> Option<T>) -> Option<T> {
        self.overrides.iter().rev().find_map(|over| read(over))
    }

    /// The same layers with other values of placeholders.
    pub(crate) fn with_fill<'b>(&'b self, fill: &'b dyn Fn(&str) -> Option<String>) -> Layers<'b> {
        Layers {
            site: self.site,
            point: self.point,
            patches: self.patches.clone(),
            overrides: self.overrides.clone(),
            fill,
        }
    }

    pub(crate) fn filled<'t>(&self, texts: impl IntoIterator<Item = &'t Template>) -> Vec<Template> {
        texts
            .into_iter()
            .map(|text| text.fill_placeholders(self.fill))
            .collect()
    }

    /// The arguments after the command: those of the recipe for parallelism, version and variant, then those of
    /// the matrix.
    fn arguments(&self) -> impl Iterator<Item = &'a Template> {
        let site = self.site;
        let sizes = self.point.parallel.sizes().into_iter();
        let spread = sizes.filter(|(_, size)| *size > 1);
        let spread = spread.filter_map(|(axis, _)| site.recipe.parallel.get(axis));
        let patched = self.patches.iter().map(|patch| &patch.args);
        let own = site.entry.args.iter().map(|arg| &arg.value);
        let chosen = self.point.args.as_ref();
        let chosen = chosen.and_then(|name| site.matrix.axes.args.get(name));
        let by_engine = site.model_entry.args.as_deref().into_iter().chain(chosen);
        let by_engine = by_engine.filter_map(|by_engine| by_engine.get(site.engine));
        let overrides = self.overrides.iter().flat_map(|over| &over.args);
        spread
            .chain(patched)
            .flatten()
            .chain(own)
            .chain(by_engine.flatten())
            .chain(overrides.map(|arg| &arg.value))
    }

    /// Environment variables in order. A later value of the same name replaces the earlier one and keeps its
    /// position.
    pub(crate) fn environment(&self, base: &OrderedMap<Template>) -> Vec<(String, Template)> {
        let site = self.site;
        let recipe = self.patches.iter().map(|patch| &patch.env);
        let recipe = std::iter::once(base).chain(recipe).flat_map(OrderedMap::iter);
        let chosen = self.point.env.as_ref();
        let chosen = chosen.and_then(|name| site.matrix.axes.env.get(name));
        let overrides = self.overrides.iter().map(|over| &over.env);
        let matrix = [&site.entry.env, &site.model_entry.env].into_iter();
        let matrix = matrix.chain(chosen).chain(overrides).flat_map(OrderedMap::iter);
        let all = recipe.chain(matrix.map(|(name, value)| (name, &value.value)));
        let merged: OrderedMap<&Template> = all.map(|(name, value)| (name.clone(), value)).collect();
        merged
            .into_iter()
            .map(|(name, value)| (name.value, value.fill_placeholders(self.fill)))
            .collect()
    }

    /// The command with the arguments of all layers. The command is that of the matrix entry, else of a patch,
    /// else of the recipe's container or process (`of_executor`), else of the recipe.
    pub(crate) fn command_with_arguments(&self, of_executor: Option<&Vec<Template>>) -> Vec<Template> {
        let patched = self.patched(|patch| patch.command.as_ref());
        let command = self.site.entry.command.as_ref().or(patched).or(of_executor);
        let command = command.or(self.site.recipe.command.as_ref());
        let command = self.with_program(command.into_iter().flatten());
        self.filled(command.into_iter().chain(self.arguments()))
    }

    /// A command whose program is that of the overrides, if they set one.
    pub(crate) fn with_program<'b>(&self, command: impl Iterator<Item = &'b Template>) -> Vec<&'b Template>
    where
        'a: 'b,
    {
        let mut command: Vec<&Template> = command.collect();
        let program = self.overridden(|over| over.program.as_ref());
        if let (Some(first), Some(program)) = (command.first_mut(), program) {
            *first = program;
        }
        command
    }
}
