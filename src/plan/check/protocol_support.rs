//! Finds data sets that an engine's protocol cannot carry. Their requests would all fail once the engine
//! runs.

use super::with_place;
use crate::config::dataset::PromptForm;
use crate::config::scenario::Scenario;
use crate::config::workload::Workload;
use crate::config::yaml::{Diagnostic, SourceSpan};
use crate::plan::Protocol;
use crate::plan::resolve::ResolveContext;

/// The errors of one scenario at an engine with `protocol`.
pub(crate) fn check_support(
    site: &ResolveContext<'_>,
    protocol: Protocol,
    scenario: &Scenario,
) -> Vec<Diagnostic> {
    let place = scenario_place(site);
    let unfit = unsupported_features(protocol, &scenario.workload, scenario.lora.is_some());
    let diagnostics = unfit.into_iter().map(|(what, help)| {
        with_place(
            Diagnostic::new(format!(
                "the protocol `{}` of the engine `{}` {what}",
                protocol.name(),
                site.engine
            )),
            place,
            format!("asked for by the scenario `{}`", site.scenario),
        )
        .with_help(help)
        .with_note(
            "a variant of the recipe may speak another protocol, such as `variant: chat`; `exclude` leaves cells of this \
             engine out",
        )
    });
    diagnostics.collect()
}

/// Place of the scenario's name in the matrix.
fn scenario_place<'a>(site: &ResolveContext<'a>) -> Option<&'a SourceSpan> {
    let named = site
        .matrix
        .scenarios
        .iter()
        .find(|named| named.name.value == site.scenario);
    named.and_then(|named| named.name.place.as_ref())
}

/// Features of a scenario that the protocol cannot carry, each with the fix.
fn unsupported_features(
    protocol: Protocol,
    workload: &Workload,
    has_lora: bool,
) -> Vec<(String, &'static str)> {
    const CHAT: &str = "use an engine or a variant with the protocol `chat`";
    let name = workload.dataset.bench_serving_name();
    let facts = workload.facts();
    let is_chat = protocol == Protocol::Chat;
    let is_bare = matches!(protocol, Protocol::Trt | Protocol::Truss);
    let mut features = Vec::new();
    match facts.prompts {
        PromptForm::Messages if !is_chat => {
            features.push((
                format!("carries no chat messages, of which `{name}` consists"),
                CHAT,
            ));
        }
        PromptForm::Conversations { turns } if !is_chat => features.push(match turns {
            None => (
                format!("carries no conversations, of which `{name}` consists"),
                CHAT,
            ),
            Some(turns) => (
                format!("carries no conversations, which `turns: {turns}` makes"),
                "use an engine or a variant with the protocol `chat`, or leave `turns` out",
            ),
        }),
        // The template stands in its prompts already, and a chat would apply it again.
        PromptForm::Templated if !matches!(protocol, Protocol::SglangNative | Protocol::Completions) => {
            features.push((
                format!("does not take the prompts of `{name}` as they are"),
                "use an engine or a variant with the protocol `sglang-native` or `completions`",
            ));
        }
        PromptForm::Pictures if is_bare || protocol == Protocol::Embeddings => {
            features.push((
                format!("carries no pictures, of which `{name}` consists"),
                "use an engine or a variant with the protocol `chat`, `completions` or `sglang-native`",
            ));
        }
        _ => {}
    }
    if facts.has_routing_key && is_bare {
        features.push((
            "has no routing key, which `routing_key` sends".to_owned(),
            "leave `routing_key` out",
        ));
    }
    if facts.sends_ids && is_chat {
        features.push((
            "carries no token ids, which `tokenize_prompt` sends".to_owned(),
            "leave `tokenize_prompt` out, or use an engine or a variant with the protocol `completions` or `sglang-native`",
        ));
    }
    if has_lora && is_bare {
        features.push((
            "names no LoRA adapter, which `lora` asks for".to_owned(),
            "leave `lora` out",
        ));
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset::DatasetName;
    use crate::config::dataset::generated_shared_prefix::{GeneratedSharedPrefix, SharedPrefix};
    use crate::config::dataset::random_ids::RandomIds;

    const ALL: [Protocol; 6] = [
        Protocol::SglangNative,
        Protocol::Completions,
        Protocol::Chat,
        Protocol::Trt,
        Protocol::Truss,
        Protocol::Embeddings,
    ];

    /// Names of the protocols that cannot carry this workload.
    fn refusing_protocols(workload: &Workload, has_lora: bool) -> Vec<&'static str> {
        let all = ALL.into_iter();
        all.filter(|protocol| !unsupported_features(*protocol, workload, has_lora).is_empty())
            .map(Protocol::name)
            .collect()
    }

    #[test]
    fn every_data_set_is_refused_where_its_rows_have_no_place() {
        let but_chat = ["sglang-native", "completions", "trt", "truss", "embeddings"];
        let bare = ["trt", "truss"];
        let of = |dataset| refusing_protocols(&Workload::with(dataset), false);
        assert_eq!(of(DatasetName::Openai), but_chat);
        assert_eq!(of(DatasetName::AgenticTrace), but_chat);
        assert_eq!(of(DatasetName::Mooncake), ["chat", "trt", "truss", "embeddings"]);
        assert_eq!(of(DatasetName::Image), ["trt", "truss", "embeddings"]);
        assert_eq!(of(DatasetName::Mmmu), ["trt", "truss", "embeddings"]);
        for dataset in [
            DatasetName::Sharegpt,
            DatasetName::Random,
            DatasetName::RandomIds,
            DatasetName::GeneratedSharedPrefix,
            DatasetName::Custom,
            DatasetName::LongbenchV2,
            DatasetName::SpeedBench,
        ] {
            assert!(of(dataset).is_empty(), "{dataset:?}");
        }
        let prefix = |turns, routing_key| {
            Workload::with(GeneratedSharedPrefix {
                shared_prefix: Some(SharedPrefix {
                    turns,
                    routing_key,
                    ..SharedPrefix::default()
                }),
                ..GeneratedSharedPrefix::default()
            })
        };
        assert_eq!(refusing_protocols(&prefix(2, false), false), but_chat);
        assert_eq!(refusing_protocols(&prefix(1, true), false), bare);
        let ids = Workload::with(RandomIds {
            input_len: Some(1),
            output_len: Some(1),
            range_ratio: 1.0,
            tokenize_prompt: true,
        });
        assert_eq!(refusing_protocols(&ids, false), ["chat"]);
        assert_eq!(
            refusing_protocols(&Workload::new(DatasetName::Random), true),
            bare
        );
    }
}
