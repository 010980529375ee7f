//! Finds data sets that an engine's protocol or memory cannot carry. Their requests would all fail once the
//! engine runs.

use super::diagnostics::with_place;
use crate::config::api::{Feature, ServerTemplate};
use crate::config::dataset::{Dataset, PromptForm};
use crate::config::quality::Quality;
use crate::config::scenario::Scenario;
use crate::config::workload::Workload;
use crate::config::yaml::{Diagnostic, SourceSpan};
use crate::plan::resolve::ResolveContext;
use crate::plan::{Protocol, ProtocolSpec};

/// The errors of one scenario at an engine with `protocol`.
pub(crate) fn check_support(
    site: &ResolveContext<'_>,
    dialect: &ProtocolSpec,
    scenario: &Scenario,
) -> Vec<Diagnostic> {
    let protocol = dialect.protocol;
    let place = scenario_place(site);
    let name = protocol_name(protocol, site.engine);
    let cancel = scenario
        .cancel
        .and_then(|cancel| cancel.unsupported_reason(protocol, &name, dialect.is_streamed(&scenario.body)));
    let unsupported =
        unsupported_features(protocol, site.engine, &scenario.workload, scenario.lora.is_some());
    let checks = (scenario.check_answers && !protocol.facts().generates_text).then(|| {
        (
            format!("`check_answers` is set, but {name} generates no text"),
            "remove `check_answers`, or use a protocol that generates text",
        )
    });
    let quality = scenario.quality.as_ref();
    let unsupported_quality = quality.and_then(|quality| quality.unsupported_reason(protocol, &name));
    let unsupported = unsupported
        .into_iter()
        .chain(cancel.map(|(what, help)| (format!("`cancel` is set, but {what}"), help)))
        .chain(checks);
    let unsupported = unsupported
        .map(|(what, help)| (what, help.to_owned()))
        .chain(unsupported_quality.map(Into::into));
    let diagnostics = unsupported.map(|(what, help)| {
        with_place(
            Diagnostic::new(what),
            place,
            format!("required by the scenario `{}`", site.scenario),
        )
        .with_help(help)
        .with_note(
            "another variant of the recipe may have another protocol: set, for example, `variant: chat`. \
             To leave out the cells of this engine, use `exclude`",
        )
    });
    // The number of prompts is known only here, where the arrivals decide it.
    let memory = scenario.workload.memory_errors().into_iter().map(|error| {
        let message = format!("the scenario `{}` cannot be: `{}`", site.scenario, error.field);
        with_place(Diagnostic::new(message), place, error.message)
    });
    let ungradable = quality.and_then(|_| Quality::ungradable_reason(scenario));
    let ungradable = ungradable.map(|[why, help]| {
        let message = format!("answers of the scenario `{}` cannot be graded", site.scenario);
        with_place(Diagnostic::new(message), place, why).with_help(help)
    });
    diagnostics.chain(memory).chain(ungradable).collect()
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

/// The protocol of an engine, for messages.
fn protocol_name(protocol: Protocol, engine: &str) -> String {
    format!("the protocol `{}` of the engine `{engine}`", protocol.name())
}

/// Messages about features of a scenario that the protocol of the engine cannot carry, each with the fix.
fn unsupported_features(
    protocol: Protocol,
    engine: &str,
    workload: &Workload,
    has_lora: bool,
) -> Vec<(String, &'static str)> {
    const CHAT: &str = "use an engine or a variant with the protocol `chat`, `messages` or `responses`";
    let name = workload.dataset.bench_serving_name();
    let sender = protocol_name(protocol, engine);
    let facts = workload.facts();
    let lacks = |feature| !protocol.carries(feature);
    let mut features = Vec::new();
    match facts.prompts {
        PromptForm::Messages if lacks(Feature::Messages) => {
            features.push((
                format!("{sender} cannot send chat messages, which the data set `{name}` consists of"),
                CHAT,
            ));
        }
        PromptForm::Conversations { turns } if lacks(Feature::Messages) => features.push(match turns {
            None => (
                format!("{sender} cannot send conversations, which the data set `{name}` consists of"),
                CHAT,
            ),
            Some(turns) => (
                format!("{sender} cannot send conversations, which `turns: {turns}` creates"),
                "use an engine or a variant with the protocol `chat`, `messages` or `responses`, or remove `turns`",
            ),
        }),
        // The prompts contain the chat template already; the protocol `chat` would apply it again.
        PromptForm::Templated if protocol.facts().template != ServerTemplate::NotApplied => {
            features.push((
                format!("{sender} cannot send the prompts of the data set `{name}` unchanged"),
                "use an engine or a variant with the protocol `sglang-native` or `completions`",
            ));
        }
        PromptForm::Pictures if lacks(Feature::Images) => {
            features.push((
                format!("{sender} cannot send images, which the data set `{name}` contains"),
                "use an engine or a variant with the protocol `chat`, `messages`, `responses`, `completions` or `sglang-native`",
            ));
        }
        _ => {}
    }
    let has_documents = facts.prompts == PromptForm::Documents;
    if has_documents && lacks(Feature::Documents) {
        features.push((
            format!("{sender} cannot send documents to rank, which the data set `{name}` consists of"),
            "use an engine with the protocol `rerank`",
        ));
    }
    if !has_documents && protocol.carries(Feature::Documents) {
        features.push((
            format!("{sender} ranks documents, which the data set `{name}` does not have"),
            "use the data set `random-rerank`",
        ));
    }
    let has_audio = facts.prompts == PromptForm::Audio;
    if has_audio && lacks(Feature::Audio) {
        features.push((
            format!("{sender} cannot send recordings, which the data set `{name}` consists of"),
            "use an engine or a variant with the protocol `transcription`, such as `variant: transcription`",
        ));
    }
    if !has_audio && protocol.carries(Feature::Audio) {
        features.push((
            format!("{sender} transcribes recordings, which the data set `{name}` does not have"),
            "use the data set `audio` or `random-audio`",
        ));
    }
    if let Dataset::Structured(structured) = &workload.dataset
        && let Some(demand) = structured.unsupported(protocol)
    {
        features.push(demand.in_matrix(&sender));
    }
    if facts.has_routing_key && lacks(Feature::RoutingKey) {
        features.push((
            format!("{sender} cannot send a routing key, which `routing_key` needs"),
            "remove `routing_key`",
        ));
    }
    if facts.sends_ids && lacks(Feature::TokenIds) {
        features.push((
            format!("{sender} cannot send token ids, which `tokenize_prompt` needs"),
            "remove `tokenize_prompt`, or use an engine or a variant with the protocol `completions` or `sglang-native`",
        ));
    }
    if has_lora && lacks(Feature::LoraName) {
        features.push((
            format!("{sender} cannot select a LoRA adapter, which `lora` needs"),
            "remove `lora`",
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
    use crate::config::dataset::structured::{Demands, Structured};

    const ALL: [Protocol; 10] = [
        Protocol::SglangNative,
        Protocol::Completions,
        Protocol::Chat,
        Protocol::Trt,
        Protocol::Truss,
        Protocol::Embeddings,
        Protocol::Messages,
        Protocol::Responses,
        Protocol::Rerank,
        Protocol::Transcription,
    ];

    /// Names of the protocols that cannot carry this workload.
    fn refusing_protocols(workload: &Workload, has_lora: bool) -> Vec<&'static str> {
        let all = ALL.into_iter();
        all.filter(|protocol| !unsupported_features(*protocol, "e", workload, has_lora).is_empty())
            .map(Protocol::name)
            .collect()
    }

    #[test]
    fn every_data_set_is_refused_where_its_rows_have_no_place() {
        let but_chat = [
            "sglang-native",
            "completions",
            "trt",
            "truss",
            "embeddings",
            "rerank",
            "transcription",
        ];
        let bare = ["trt", "truss", "rerank", "transcription"];
        let of = |dataset| refusing_protocols(&Workload::with(dataset), false);
        assert_eq!(of(DatasetName::Openai), but_chat);
        assert_eq!(of(DatasetName::AgenticTrace), but_chat);
        assert_eq!(
            of(DatasetName::Mooncake),
            [
                "chat",
                "trt",
                "truss",
                "embeddings",
                "messages",
                "responses",
                "rerank",
                "transcription"
            ]
        );
        let textual = ["trt", "truss", "embeddings", "rerank", "transcription"];
        assert_eq!(of(DatasetName::Image), textual);
        assert_eq!(of(DatasetName::Mmmu), textual);
        for (dataset, own) in [
            (DatasetName::RandomRerank, "rerank"),
            (DatasetName::Audio, "transcription"),
            (DatasetName::RandomAudio, "transcription"),
        ] {
            let others = ALL.map(Protocol::name).into_iter().filter(|name| *name != own);
            assert_eq!(of(dataset), others.collect::<Vec<_>>(), "{dataset:?}");
        }
        for dataset in [
            DatasetName::Sharegpt,
            DatasetName::Random,
            DatasetName::RandomIds,
            DatasetName::GeneratedSharedPrefix,
            DatasetName::Custom,
            DatasetName::LongbenchV2,
            DatasetName::SpeedBench,
        ] {
            assert_eq!(of(dataset), ["rerank", "transcription"], "{dataset:?}");
        }
        assert_eq!(
            of(DatasetName::Structured),
            [
                "sglang-native",
                "trt",
                "truss",
                "embeddings",
                "messages",
                "rerank",
                "transcription"
            ]
        );
        let tools = Workload::with(Structured {
            structured: Some(Demands {
                tools_share: 1.0,
                ..Demands::default()
            }),
            ..Structured::default()
        });
        assert_eq!(refusing_protocols(&tools, false), but_chat);
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
            lengths: None,
            common_prefix: None,
        });
        assert_eq!(
            refusing_protocols(&ids, false),
            ["chat", "messages", "responses", "rerank", "transcription"]
        );
        assert_eq!(
            refusing_protocols(&Workload::new(DatasetName::Random), true),
            bare
        );
    }
}
