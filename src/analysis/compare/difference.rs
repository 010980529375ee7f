//! A difference of two sides besides their metrics.

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DifferenceKind {
    /// The machine, in something that decides how fast an engine can be. A change of metrics is then not
    /// attributed to the engine.
    Environment,
    /// The machine, in something that forbids no verdict: its name, a kernel patch, another machine of the
    /// same class.
    Host,
    /// The load, so the metrics describe different work.
    Load,
    /// Timeouts and SLO. They are reported, and goodput is not judged if the SLOs differ.
    LoadLimits,
    /// The engine, which is what a comparison is for.
    Engine,
    Tool,
}

impl DifferenceKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Host => "host",
            Self::Load => "load",
            Self::LoadLimits => "limits",
            Self::Engine => "engine",
            Self::Tool => "tool",
        }
    }

    /// Returns whether this difference forbids a verdict on the engine.
    pub(crate) const fn forbids_verdict(self) -> bool {
        matches!(self, Self::Environment | Self::Load)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) kind: DifferenceKind,
    /// Its name, such as `driver`.
    pub(crate) what: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

impl Difference {
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} {}: {} → {}",
            self.kind.name(),
            self.what,
            self.before,
            self.after
        )
    }
}
