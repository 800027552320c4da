// SPDX-License-Identifier: MIT
//! Pictures as text: small SVG files whose colours follow the reader's light or dark screen, with a title and a
//! description for those who do not see them.
//!
//! Colours are classes, `f0` to fill and `k0` to draw with, so that one style sheet serves a file of its own as well as
//! a page with many pictures. All text goes through [`escape`].

use std::fmt::Write;

/// Colours of contenders: on white, on black. They differ in lightness too; what has none left gets a dash.
pub const COLORS: [(&str, &str); 8] = [
    ("#222222", "#f2f2f2"),
    ("#c8102e", "#ff6b6b"),
    ("#0072b2", "#4aa8e8"),
    ("#e08a00", "#ffb347"),
    ("#008a63", "#2ecc9b"),
    ("#a04590", "#d88bd0"),
    ("#6a6a00", "#c8c83c"),
    ("#5c8aa8", "#9cc3dc"),
];

/// Dashes, for those who come after the last colour.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "10 3 2 3"];

/// The style sheet of all pictures.
pub fn style() -> String {
    let mut light = String::from(
        "svg.q{background:#fff}.q text{fill:#1b1b1b;font:12px system-ui,sans-serif}.q .t{font-size:13px;font-weight:600}\
         .q .n{fill:#5a5a5a}.q .g{stroke:#dcdcdc}.q .x{stroke:#8a8a8a}.q .w{stroke:#1b1b1b;stroke-opacity:.6}\
         .q .l{fill:none;stroke-width:2;stroke-linejoin:round}.q .h{stroke-width:1}.q .b{fill-opacity:.85}.q .e{fill-opacity:.25}\
         .q .z{fill:#fff}.q .m{fill:#5a5a5a;font-family:ui-monospace,monospace}.q text.ink{fill:#111}.q text.pale{fill:#fff}",
    );
    let mut dark = String::from(
        "svg.q{background:#16191d}.q text{fill:#e4e6e8}.q .n{fill:#a4a9ae}.q .g{stroke:#343a40}.q .x{stroke:#767c82}\
         .q .w{stroke:#e4e6e8}.q .z{fill:#16191d}.q .m{fill:#a4a9ae}.q text.ink{fill:#111}.q text.pale{fill:#fff}",
    );
    for (index, (on_white, on_black)) in COLORS.iter().enumerate() {
        let _ = write!(light, ".q .f{index}{{fill:{on_white}}}.q .k{index}{{stroke:{on_white}}}");
        let _ = write!(dark, ".q .f{index}{{fill:{on_black}}}.q .k{index}{{stroke:{on_black}}}");
    }
    format!("{light}@media (prefers-color-scheme:dark){{{dark}}}")
}

/// Text as it may stand in SVG and HTML. A control character, which a program's name may have, would make a picture no XML.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}

/// Where text stands relative to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// To the right of it.
    Start,
    /// In its middle.
    Middle,
    /// To the left of it.
    End,
}

/// A picture that is being drawn.
#[derive(Debug, Clone)]
pub struct Svg {
    width: f64,
    height: f64,
    title: String,
    description: String,
    body: String,
}

impl Svg {
    /// An empty one. `description` says in words what is to be seen.
    pub fn new(width: f64, height: f64, title: &str, description: &str) -> Self {
        Self {
            width,
            height,
            title: title.to_owned(),
            description: description.to_owned(),
            body: String::new(),
        }
    }

    /// Text; `class` is `t` for a title, `n` for a note, `m` for what has columns, or empty.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = attribute("class", class);
        let _ = writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}{class}>{}</text>", escape(text));
    }

    /// Text, and behind it a note.
    pub fn text_and_note(&mut self, (x, y): (f64, f64), text: &str, note: &str) {
        let (text, note) = (escape(text), escape(note));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\">{text} <tspan class=\"n\">{note}</tspan></text>"
        );
    }

    /// Text that goes upwards, centred.
    pub fn text_up(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let class = attribute("class", class);
        let turn = format!(" transform=\"translate({x:.1} {y:.1}) rotate(-90)\"");
        let _ = writeln!(self.body, "<text text-anchor=\"middle\"{turn}{class}>{}</text>", escape(text));
    }

    /// Text that rises to the right, for the heads of narrow columns.
    pub fn text_slanted(&mut self, (x, y): (f64, f64), text: &str) {
        let turn = format!(" transform=\"translate({x:.1} {y:.1}) rotate(-45)\"");
        let _ = writeln!(self.body, "<text{turn}>{}</text>", escape(text));
    }

    /// A filled box with what it says when pointed at.
    pub fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: usize, tip: &str) {
        let fill = color % COLORS.len();
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" class=\"b f{fill}\"><title>{}</title></rect>",
            width.max(0.5),
            escape(tip)
        );
    }

    /// A box, faint or not, without a tip of its own.
    pub fn block(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: usize, faint: bool) {
        let class = format!("{}f{}", if faint { "e " } else { "" }, color % COLORS.len());
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        );
    }

    /// Boxes of one colour: left, top, width and height.
    pub fn boxes(&mut self, boxes: &[(f64, f64, f64, f64)], color: usize) {
        let mut path = String::new();
        for (x, y, width, height) in boxes {
            let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z");
        }
        let _ = writeln!(self.body, "<path d=\"{path}\" class=\"f{}\"/>", color % COLORS.len());
    }

    /// What `draw` draws says this when pointed at.
    pub fn group(&mut self, tip: &str, draw: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "<g><title>{}</title>", escape(tip));
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// Another picture within this one.
    pub fn place(&mut self, (x, y): (f64, f64), other: &Svg) {
        let said = escape(&format!("{}. {}", other.title, other.description));
        let _ = write!(
            self.body,
            "<g transform=\"translate({x:.1} {y:.1})\" role=\"img\" aria-label=\"{said}\">\n{}</g>\n",
            other.body
        );
    }

    /// How wide it is.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// How high it is.
    pub fn height(&self) -> f64 {
        self.height
    }

    /// A box of a colour of its own.
    pub fn tile(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        );
    }

    /// A straight line: `g` for the grid, `x` for an axis, `w` for a whisker.
    pub fn rule(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" class=\"{class}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points.
    pub fn line(&mut self, points: &[(f64, f64)], who: usize, thin: bool) {
        let color = who % COLORS.len();
        let dash = DASHES[who / COLORS.len() % DASHES.len()];
        let mut path = String::new();
        for (index, (x, y)) in thinned(points).iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let dash = attribute("stroke-dasharray", dash);
        let thin = if thin { " h" } else { "" };
        let _ = writeln!(self.body, "<path d=\"{path}\" class=\"l{thin} k{color}\"{dash}/>");
    }

    /// A faint broken line, for what would be ideal.
    pub fn guide(&mut self, points: &[(f64, f64)]) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(
            self.body,
            "<path d=\"M{}\" class=\"l x\" stroke-dasharray=\"2 4\" stroke-width=\"1\"/>",
            path.join("L")
        );
    }

    /// A mark, whose shape belongs to the contender as its colour does.
    pub fn mark(&mut self, (x, y): (f64, f64), who: usize) {
        let class = format!("class=\"f{} k{}\"", who % COLORS.len(), who % COLORS.len());
        // Those who share a colour have different marks.
        let _ = match (who + who / COLORS.len()) % 4 {
            0 => writeln!(self.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" {class}/>"),
            1 => writeln!(self.body, "<path d=\"M{:.1} {:.1}h6v6h-6z\" {class}/>", x - 3.0, y - 3.0),
            2 => writeln!(self.body, "<path d=\"M{x:.1} {:.1}l4 7h-8z\" {class}/>", y - 4.0),
            _ => writeln!(self.body, "<path d=\"M{x:.1} {:.1}l4 4l-4 4l-4-4z\" {class}/>", y - 4.0),
        };
    }

    /// The picture, for a page that has [`style`].
    pub fn inline(&self) -> String {
        self.finish("")
    }

    /// The picture, as a file of its own.
    pub fn file(&self) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}",
            self.finish(&format!(
                "<style>{}</style>\n<rect class=\"z\" width=\"100%\" height=\"100%\"/>\n",
                style()
            ))
        )
    }

    fn finish(&self, style: &str) -> String {
        let (width, height) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"q\" role=\"img\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\">\n<title>{}</title>\n<desc>{}</desc>\n{style}{}</svg>\n",
            escape(&self.title),
            escape(&self.description),
            self.body
        )
    }
}

fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" {name}=\"{value}\"") }
}

/// How far a point may be from the line that leaves it out.
const SLACK: f64 = 0.3;

/// Without points that the line through the rest goes by. From the last point that was kept, the slopes are known that go by all that
/// follow; the first point beyond them ends that.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let [first, rest @ ..] = points else { return Vec::new() };
    let mut kept = vec![*first];
    let (mut from, mut last) = (*first, None);
    let (mut least, mut most) = (f64::NEG_INFINITY, f64::INFINITY);
    for &(x, y) in rest {
        let slope = (y - from.1) / (x - from.0);
        if let Some(before) = last
            && !(x > from.0 && (least..=most).contains(&slope))
        {
            kept.push(before);
            from = before;
            (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
        }
        let across = x - from.0;
        if across > 0.0 {
            least = least.max((y - SLACK - from.1) / across);
            most = most.min((y + SLACK - from.1) / across);
        } else {
            // Straight up, or back: nothing goes by.
            (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
        }
        last = Some((x, y));
    }
    kept.extend(last);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_speak_and_escape() {
        let mut svg = Svg::new(100.0, 50.0, "a < b", "says \"it\"");
        svg.text((1.0, 2.0), Anchor::End, "n", "<&>");
        svg.bar((0.0, 0.0), (10.0, 5.0), 9, "tip & top");
        svg.line(&[(0.0, 0.0), (1.0, 5.0), (2.0, 0.0)], 8, false);
        svg.group("a \"group\"", |svg| svg.text_and_note((0.0, 0.0), "<text>", "<note>"));
        let mut outer = Svg::new(200.0, 100.0, "outer", "");
        outer.place((5.0, 6.0), &svg);
        assert!(
            outer
                .inline()
                .contains("translate(5.0 6.0)\" role=\"img\" aria-label=\"a &lt; b. says &quot;it&quot;\"")
        );
        let file = svg.file();
        assert!(file.starts_with("<?xml") && file.contains("<title>a &lt; b</title>"), "{file}");
        assert!(file.contains("<desc>says &quot;it&quot;</desc>") && file.contains("&lt;&amp;&gt;"));
        assert!(
            file.contains("<title>a &quot;group&quot;</title>")
                && file.contains("&lt;text&gt; <tspan class=\"n\">&lt;note&gt;")
        );
        assert_eq!(escape("a\x1b[1m\tb\n"), "a\u{fffd}[1m\tb\n");
        assert!(file.contains("class=\"b f1\"") && file.contains("tip &amp; top"));
        assert!(
            file.contains("class=\"l k0\" stroke-dasharray=\"7 4\""),
            "the ninth has the first's colour and a dash"
        );
        assert!(file.contains("prefers-color-scheme:dark") && !svg.inline().contains("<style>"));
    }

    #[test]
    fn points_on_a_line_are_left_out() {
        let straight: Vec<(f64, f64)> = (0..100).map(|i| (f64::from(i), 2.0 * f64::from(i))).collect();
        assert_eq!(thinned(&straight), [straight[0], straight[99]]);
        let bent = [(0.0, 0.0), (1.0, 9.0), (2.0, 0.0)];
        assert_eq!(thinned(&bent), bent);
        assert_eq!(thinned(&bent[..1]), [bent[0]]);
        let wall = [(0.0, 0.0), (1.0, 0.0), (1.0, 9.0), (1.0, 20.0), (2.0, 20.0)];
        assert_eq!(thinned(&wall), wall);
        // Steps of a dot do not become a slope, however long they are.
        let steps: Vec<(f64, f64)> = (0..400).map(|i| (f64::from(i), f64::from(i / 100))).collect();
        let kept = thinned(&steps);
        assert!(kept.len() < 20, "{kept:?}");
        for (x, y) in steps {
            let right = kept.iter().position(|point| point.0 >= x).unwrap();
            let ((x0, y0), (x1, y1)) = (kept[right.saturating_sub(1)], kept[right]);
            let there = if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y1 };
            assert!((there - y).abs() <= SLACK + 1e-9, "at {x}: {there} for {y} of {kept:?}");
        }
        assert!(thinned(&[]).is_empty());
    }
}
