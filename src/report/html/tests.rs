use super::*;

#[test]
fn the_page_is_forbidden_the_network_and_asks_for_nothing() {
    // What a browser would fetch: addresses in attributes, imports or fonts of the style, requests of the
    // script.
    let page = [PARTS, HEAD, REPORT, NIGHTS, FOOT, STYLE, SCRIPT].concat();
    for word in [
        "http:",
        "src=",
        "url(",
        "@import",
        "fetch(",
        "XMLHttp",
        "WebSocket",
        "import(",
    ] {
        let requests = page
            .replace("http://www.w3.org/2000/svg", "")
            .replace("http-equiv", "");
        assert!(!requests.contains(word), "{word}");
    }
    assert!(HEAD.contains("default-src 'none'"));
    // The policy would reject style attributes.
    assert!(!page.contains("style=\""));
}

#[test]
fn script_and_style_cannot_end_their_elements() {
    assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
}
