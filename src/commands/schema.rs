//! `matrix schema`: prints the JSON Schema for completion and checks in editors.

use schemars::generate::SchemaSettings;

use crate::cli::{SchemaArgs, SchemaKind};
use crate::commands::error::Outcome;
use crate::commands::output::print;
use crate::config::cluster::ClusterProfile;
use crate::config::engine::Recipe;
use crate::config::matrix::Matrix;
use crate::config::prices::PriceList;
use crate::exit::Exit;
use crate::report::document::Document;

pub(crate) fn execute(args: &SchemaArgs) -> Outcome {
    print(&schema_text(args.kind));
    Ok(Exit::Done)
}

pub(crate) fn schema_text(kind: SchemaKind) -> String {
    let mut schema = match kind {
        SchemaKind::Matrix => schemars::schema_for!(Matrix),
        SchemaKind::Engine => schemars::schema_for!(Recipe),
        SchemaKind::Cluster => schemars::schema_for!(ClusterProfile),
        SchemaKind::Prices => schemars::schema_for!(PriceList),
        SchemaKind::Report => SchemaSettings::default()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<Document>(),
    };
    if kind != SchemaKind::Report {
        // Keys `x-…` hold YAML anchors that several places share.
        schema.insert("patternProperties".to_owned(), serde_json::json!({ "^x-": true }));
    }
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    format!("{text}\n")
}
