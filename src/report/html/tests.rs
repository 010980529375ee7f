use super::*;

#[test]
fn the_page_is_forbidden_the_network_and_asks_for_nothing() {
    // What a browser would fetch: addresses in attributes, imports or fonts of the style, requests of the
    // script.
    let page = [
        PARTS,
        HEAD,
        REPORT,
        NIGHTS,
        SITE,
        FOOT,
        STYLE,
        SITE_STYLE,
        SCRIPT,
        SITE_SCRIPT,
    ]
    .concat();
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
    for text in [SCRIPT, SITE_SCRIPT, STYLE, SITE_STYLE] {
        assert!(!text.contains("</"));
    }
}

#[test]
fn the_scripts_never_make_elements_of_text() {
    for word in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    ] {
        assert!(!SCRIPT.contains(word) && !SITE_SCRIPT.contains(word), "{word}");
    }
}
