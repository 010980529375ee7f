//! The JSON Schemas of the files that users write. A test derives them from the types again (`commands::schema`).

/// Of a matrix.
pub(crate) const MATRIX: &str = include_str!("../../schemas/matrix.json");
/// Of a recipe.
pub(crate) const RECIPE: &str = include_str!("../../schemas/engine.json");
/// Of the profile of a cluster.
pub(crate) const CLUSTER: &str = include_str!("../../schemas/cluster.json");
/// Of a list of prices.
pub(crate) const PRICES: &str = include_str!("../../schemas/prices.json");

/// The keys that a file of this schema must have.
pub(crate) fn required_keys(schema: &str) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Required {
        #[serde(default)]
        required: Vec<String>,
    }
    serde_json::from_str(schema).map_or_else(|_| Vec::new(), |Required { required }| required)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_keys_of_a_schema_are_those_of_its_file() {
        assert_eq!(required_keys(MATRIX), ["engines", "models", "scenarios"]);
        assert_eq!(required_keys("{}"), [""; 0]);
    }
}
