//! SVG as text. Every text and attribute is escaped in this file only.

use std::fmt::Write as _;

use crate::report::table::single_line;

#[derive(Default)]
pub(super) struct Svg {
    text: String,
}

impl Svg {
    /// Begins a drawing of that size in its own units; `shows` describes it to screen readers.
    pub(super) fn new(width: f64, height: f64, shows: &str, attributes: &[(&str, String)]) -> Self {
        Self::with_role("img", (width, height), shows, attributes)
    }

    /// Like [`Self::new`], for a drawing with links: a picture's content is hidden from screen readers.
    pub(super) fn with_links(width: f64, height: f64, shows: &str, attributes: &[(&str, String)]) -> Self {
        Self::with_role("group", (width, height), shows, attributes)
    }

    fn with_role(
        role: &str,
        (width, height): (f64, f64),
        shows: &str,
        attributes: &[(&str, String)],
    ) -> Self {
        let mut svg = Self::default();
        let _ = write!(
            svg.text,
            "<svg viewBox=\"0 0 {} {}\" role=\"{role}\" aria-label=\"{}\"",
            coordinate(width),
            coordinate(height),
            escape(shows)
        );
        svg.attributes(attributes);
        svg.text.push_str(">\n");
        svg
    }

    fn attributes(&mut self, attributes: &[(&str, String)]) {
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"{}\"", escape(value));
        }
    }

    /// Adds an element that is empty except for an optional title.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, String)], title: Option<&str>) {
        let _ = write!(self.text, "<{name}");
        self.attributes(attributes);
        match title {
            Some(title) => {
                let _ = writeln!(self.text, "><title>{}</title></{name}>", escape(title));
            }
            None => self.text.push_str("/>\n"),
        }
    }

    /// Adds a text; `anchor` is `start`, `middle` or `end`.
    pub(super) fn label(&mut self, (x, y): (f64, f64), anchor: &str, class: &str, text: &str) {
        let _ = writeln!(
            self.text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            coordinate(x),
            coordinate(y),
            escape(text)
        );
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.element(
            "line",
            &[
                ("x1", coordinate(from.0)),
                ("y1", coordinate(from.1)),
                ("x2", coordinate(to.0)),
                ("y2", coordinate(to.1)),
                ("class", class.to_owned()),
            ],
            None,
        );
    }

    /// Adds a rectangle; `at` is its upper left corner.
    pub(super) fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), class: &str, title: Option<&str>) {
        self.element(
            "rect",
            &[
                ("x", coordinate(at.0)),
                ("y", coordinate(at.1)),
                ("width", coordinate(size.0.max(0.0))),
                ("height", coordinate(size.1.max(0.0))),
                ("class", class.to_owned()),
            ],
            title,
        );
    }

    /// Adds a marker around a point; `which` selects its shape, modulo [`super::MARKERS`].
    pub(super) fn marker(&mut self, (x, y): (f64, f64), which: usize, class: &str, title: Option<&str>) {
        const R: f64 = 4.0;
        let path = |points: &[(f64, f64)]| {
            let corners: Vec<String> = points
                .iter()
                .map(|(dx, dy)| format!("{} {}", coordinate(x + dx * R), coordinate(y + dy * R)))
                .collect();
            format!("M{}Z", corners.join("L"))
        };
        let shape = match which % super::MARKERS {
            0 => {
                let attributes = [
                    ("cx", coordinate(x)),
                    ("cy", coordinate(y)),
                    ("r", coordinate(R)),
                    ("class", class.to_owned()),
                ];
                return self.element("circle", &attributes, title);
            }
            1 => path(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => path(&[(0.0, -1.15), (1.1, 0.85), (-1.1, 0.85)]),
            3 => path(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
            4 => path(&[(0.0, 1.15), (1.1, -0.85), (-1.1, -0.85)]),
            _ => path(&[
                (-0.4, -1.2),
                (0.4, -1.2),
                (0.4, -0.4),
                (1.2, -0.4),
                (1.2, 0.4),
                (0.4, 0.4),
                (0.4, 1.2),
                (-0.4, 1.2),
                (-0.4, 0.4),
                (-1.2, 0.4),
                (-1.2, -0.4),
                (-0.4, -0.4),
            ]),
        };
        self.element("path", &[("d", shape), ("class", class.to_owned())], title);
    }

    /// Begins a link to a page, named for screen readers. What is added until [`Self::end_link`] belongs to it.
    pub(super) fn begin_link(&mut self, page: &str, name: &str) {
        let _ = write!(
            self.text,
            "<a href=\"{}\" aria-label=\"{}\">",
            escape(page),
            escape(name)
        );
    }

    /// Ends a link.
    pub(super) fn end_link(&mut self) {
        self.text.push_str("</a>\n");
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }
}

/// A coordinate with one digit after the point.
pub(super) fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Escapes text for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in single_line(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
