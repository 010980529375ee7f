use super::*;

#[test]
fn every_code_has_one_row_in_the_table_and_the_document_is_that_table() {
    let rows: Vec<Code> = TABLE.iter().map(|entry| entry.code).collect();
    assert_eq!(rows, Code::ALL, "one row for each code, in their order");
    for entry in TABLE {
        for words in [entry.means, entry.mend] {
            assert!(words.ends_with('.'), "{words}");
        }
        let name = serde_json::to_value(entry.code).unwrap();
        assert_eq!(
            name,
            entry.code.name(),
            "one name for a code, on disk and in tables"
        );
    }
    let document = include_str!("../../VALIDITY.md");
    assert!(
        document == described(),
        "src/VALIDITY.md is not what `matrix explain --codes` prints; write it anew"
    );
}

/// Each bound stands in the row of a code under its name and with its default.
#[test]
fn the_table_tells_the_defaults_of_the_bounds() {
    let bounds = serde_json::to_value(Bounds::default()).unwrap();
    for (name, value) in bounds.as_object().unwrap() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let value = value.strip_suffix(".0").unwrap_or(&value);
        let row = TABLE
            .iter()
            .find(|entry| entry.bound.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("no row tells of `{name}`"));
        assert!(
            row.bound.contains(value),
            "`{name}` is {value}, and the table says: {}",
            row.bound
        );
    }
}

#[test]
fn bounds_that_cannot_be_are_named() {
    let bounds = Bounds {
        warm: 5.0,
        own_tokens: 0.5,
        ..Bounds::default()
    };
    assert_eq!(
        bounds.objections(),
        [
            ("warm", "a share from 0 to 1"),
            ("own_tokens", "a factor from 1 on")
        ]
    );
    assert!(Bounds::default().objections().is_empty());
}
