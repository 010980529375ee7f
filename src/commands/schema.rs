//! `matrix schema`: prints the JSON Schema for completion and checks in editors.

use crate::cli::{SchemaArgs, SchemaKind};
use crate::commands::error::Outcome;
use crate::commands::output::print;
use crate::config::shipped;
use crate::exit::Exit;

pub(crate) fn execute(args: &SchemaArgs) -> Outcome {
    print(schema_text(args.kind));
    Ok(Exit::Done)
}

/// The committed schema, which a test derives from the types again.
pub(crate) fn schema_text(kind: SchemaKind) -> &'static str {
    let path = match kind {
        SchemaKind::Matrix => "schemas/matrix.json",
        SchemaKind::Engine => "schemas/engine.json",
        SchemaKind::Cluster => "schemas/cluster.json",
        SchemaKind::Prices => "schemas/prices.json",
        SchemaKind::Report => "schemas/report.json",
    };
    shipped::file_text(path).expect("the schema is shipped")
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the variable MATRIX_RECORD makes this test write the files again"
)]
mod tests {
    use clap::ValueEnum as _;
    use schemars::generate::SchemaSettings;
    use schemars::schema_for;

    use super::*;
    use crate::config::cluster::ClusterProfile;
    use crate::config::engine::Recipe;
    use crate::config::matrix::Matrix;
    use crate::config::prices::PriceList;
    use crate::report::document::Document;

    /// The schema of the types, as the file has it.
    fn derived(kind: SchemaKind) -> String {
        let mut schema = match kind {
            SchemaKind::Matrix => schema_for!(Matrix),
            SchemaKind::Engine => schema_for!(Recipe),
            SchemaKind::Cluster => schema_for!(ClusterProfile),
            SchemaKind::Prices => schema_for!(PriceList),
            SchemaKind::Report => SchemaSettings::default()
                .for_serialize()
                .into_generator()
                .into_root_schema_for::<Document>(),
        };
        if kind != SchemaKind::Report {
            // Keys `x-…` hold YAML anchors that several places share.
            schema.insert("patternProperties".to_owned(), serde_json::json!({ "^x-": true }));
        }
        format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())
    }

    /// `MATRIX_RECORD=1 cargo test --lib schema` writes the files anew.
    #[test]
    fn the_files_are_the_schemas_of_the_types() {
        for kind in SchemaKind::value_variants() {
            let name = kind.to_possible_value().unwrap().get_name().to_owned();
            let file = format!("{}/schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let derived = derived(*kind);
            if std::env::var_os("MATRIX_RECORD").is_some() {
                std::fs::write(&file, &derived).unwrap();
            } else {
                assert_eq!(
                    std::fs::read_to_string(&file).unwrap(),
                    derived,
                    "{file}: `MATRIX_RECORD=1 cargo test --lib schema` writes the file again"
                );
            }
        }
    }
}
