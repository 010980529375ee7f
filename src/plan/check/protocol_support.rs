//! Data sets that the protocol of an engine cannot carry. Each of these would end as a refused request once the engine runs.

use super::at;
use crate::config::scenario::Scenario;
use crate::config::workload::{Dataset, Workload};
use crate::config::yaml::{Mistake, Place};
use crate::plan::Protocol;
use crate::plan::resolve::Site;

/// The mistakes of one scenario at an engine that speaks `protocol`.
pub(crate) fn carry(site: &Site<'_>, protocol: Protocol, scenario: &Scenario) -> Vec<Mistake> {
    let place = place(site);
    let unfit = unfit(protocol, &scenario.workload, scenario.lora.is_some());
    let told = unfit.into_iter().map(|(what, help)| {
        at(
            Mistake::new(format!(
                "the protocol `{}` of the engine `{}` {what}",
                protocol.name(),
                site.engine
            )),
            place,
            format!("asked for by the scenario `{}`", site.scenario),
        )
        .help(help)
        .note(
            "a variant of the recipe may speak another protocol, such as `variant: chat`; `exclude` leaves cells of this \
             engine out",
        )
    });
    told.collect()
}

/// Where the scenario is named in the matrix.
fn place<'a>(site: &Site<'a>) -> Option<&'a Place> {
    let named = site
        .matrix
        .scenarios
        .iter()
        .find(|named| named.name.value == site.scenario);
    named.and_then(|named| named.name.place.as_ref())
}

/// What the protocol cannot carry of a scenario, and how to mend it.
fn unfit(protocol: Protocol, workload: &Workload, has_lora: bool) -> Vec<(String, &'static str)> {
    const CHAT: &str = "use an engine or a variant with the protocol `chat`";
    let name = workload.dataset.bench_serving_name();
    let is_chat = protocol == Protocol::Chat;
    let is_bare = matches!(protocol, Protocol::Trt | Protocol::Truss);
    let mut found = Vec::new();
    match workload.dataset {
        Dataset::Openai if !is_chat => {
            found.push((
                format!("carries no chat messages, of which `{name}` consists"),
                CHAT,
            ));
        }
        Dataset::AgenticTrace if !is_chat => {
            found.push((
                format!("carries no conversations, of which `{name}` consists"),
                CHAT,
            ));
        }
        Dataset::GeneratedSharedPrefix => {
            let prefix = workload.shared_prefix();
            if prefix.turns > 1 && !is_chat {
                found.push((
                    format!("carries no conversations, which `turns: {}` makes", prefix.turns),
                    "use an engine or a variant with the protocol `chat`, or leave `turns` out",
                ));
            }
            if prefix.routing_key && is_bare {
                found.push((
                    "has no routing key, which `routing_key` sends".to_owned(),
                    "leave `routing_key` out",
                ));
            }
        }
        // The template stands in its prompts already, and a chat would apply it again.
        Dataset::Mooncake if !matches!(protocol, Protocol::SglangNative | Protocol::Completions) => {
            found.push((
                format!("does not take the prompts of `{name}` as they are"),
                "use an engine or a variant with the protocol `sglang-native` or `completions`",
            ));
        }
        Dataset::Image | Dataset::Mmmu if is_bare || protocol == Protocol::Embeddings => {
            found.push((
                format!("carries no pictures, of which `{name}` consists"),
                "use an engine or a variant with the protocol `chat`, `completions` or `sglang-native`",
            ));
        }
        _ => {}
    }
    if workload.tokenize_prompt && is_chat {
        found.push((
            "carries no token ids, which `tokenize_prompt` sends".to_owned(),
            "leave `tokenize_prompt` out, or use an engine or a variant with the protocol `completions` or `sglang-native`",
        ));
    }
    if has_lora && is_bare {
        found.push((
            "names no LoRA adapter, which `lora` asks for".to_owned(),
            "leave `lora` out",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset_options::SharedPrefix;

    const ALL: [Protocol; 6] = [
        Protocol::SglangNative,
        Protocol::Completions,
        Protocol::Chat,
        Protocol::Trt,
        Protocol::Truss,
        Protocol::Embeddings,
    ];

    /// The protocols that refuse this workload.
    fn refused(workload: &Workload, has_lora: bool) -> Vec<&'static str> {
        let all = ALL.into_iter();
        all.filter(|protocol| !unfit(*protocol, workload, has_lora).is_empty())
            .map(Protocol::name)
            .collect()
    }

    #[test]
    fn every_data_set_is_refused_where_its_rows_have_no_place() {
        let but_chat = ["sglang-native", "completions", "trt", "truss", "embeddings"];
        let bare = ["trt", "truss"];
        let of = |dataset| refused(&Workload::of(dataset), false);
        assert_eq!(of(Dataset::Openai), but_chat);
        assert_eq!(of(Dataset::AgenticTrace), but_chat);
        assert_eq!(of(Dataset::Mooncake), ["chat", "trt", "truss", "embeddings"]);
        assert_eq!(of(Dataset::Image), ["trt", "truss", "embeddings"]);
        assert_eq!(of(Dataset::Mmmu), ["trt", "truss", "embeddings"]);
        for dataset in [
            Dataset::Sharegpt,
            Dataset::Random,
            Dataset::RandomIds,
            Dataset::GeneratedSharedPrefix,
            Dataset::Custom,
            Dataset::LongbenchV2,
            Dataset::SpeedBench,
        ] {
            assert!(of(dataset).is_empty(), "{dataset:?}");
        }
        let prefix = |turns, routing_key| Workload {
            shared_prefix: Some(SharedPrefix {
                turns,
                routing_key,
                ..SharedPrefix::default()
            }),
            ..Workload::of(Dataset::GeneratedSharedPrefix)
        };
        assert_eq!(refused(&prefix(2, false), false), but_chat);
        assert_eq!(refused(&prefix(1, true), false), bare);
        let ids = Workload {
            tokenize_prompt: true,
            ..Workload::of(Dataset::RandomIds)
        };
        assert_eq!(refused(&ids, false), ["chat"]);
        assert_eq!(refused(&Workload::of(Dataset::Random), true), bare);
    }
}
