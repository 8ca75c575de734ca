//! A Gantt chart of a run as SVG: a lane for each slot, a bar for each job, an arrow for each
//! steal.

use std::fmt::Write as _;

use filch_scheduler::time::Duration;

use crate::svg::SvgWriter;

/// A chart.
pub struct Chart<'a> {
    /// The heading.
    pub title: &'a str,
    /// From top to bottom.
    pub lanes: Vec<ChartLane>,
    /// In any order. The bars of one lane do not overlap.
    pub bars: &'a [ChartBar],
    /// In any order.
    pub thefts: &'a [ChartTheft],
    /// When the last job ended.
    pub makespan: Duration,
    /// When it would have ended without any overhead.
    pub ideal: Duration,
    /// The name of a job.
    pub name: &'a dyn Fn(usize) -> String,
}

/// One slot of one worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChartLane {
    /// `w1`, or `w1.2` for the second slot of a worker with several.
    pub name: String,
}

/// One execution of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChartBar {
    /// The index of its lane.
    pub lane: usize,
    /// When it started.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
    /// The index of its job.
    pub job: usize,
    /// Whether its worker stole it.
    pub stolen: bool,
}

/// Jobs that one worker stole from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChartTheft {
    /// When.
    pub at: Duration,
    /// A lane of the victim.
    pub from: usize,
    /// A lane of the thief.
    pub to: usize,
    /// How many.
    pub jobs: usize,
}

/// Bars and arrows have a tooltip each, so there are twice as many elements. With more, browsers
/// get slow, and single bars are not visible any more.
const BARS_MAX: usize = 20_000;
const ARROWS_MAX: usize = 4_000;

const WIDTH: f64 = 1280.0;
const MARGIN: f64 = 28.0;
/// Above the lanes: heading, figures and legend, labels of the two ends.
const HEAD: f64 = 112.0;
/// Below the lanes: the axis.
const FOOT: f64 = 52.0;

const STYLE: &str = "
  text { font: 12px system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; fill: #52596b }
  .paper { fill: #ffffff } .stripe { fill: #f5f6f9 } .rule { stroke: #e3e6ec }
  .title { font-size: 19px; font-weight: 600; fill: #161a26 }
  .lane { font-size: 11px } .small { font-size: 9px }
  .inside { font-size: 10px; fill: #ffffff }
  .own { fill: #4f7cd6 } .stolen { fill: #ee8a2d }
  .theft { fill: none; stroke: #b0256f } .tip { fill: #b0256f }
  .ideal { stroke: #0c8f6b; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .end { stroke: #161a26; stroke-width: 1.5 }
  .ideal-text { fill: #0a7a5b; font-weight: 600 } .end-text { fill: #161a26; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #a2abbf }
    .paper { fill: #12151d } .stripe { fill: #191d28 } .rule { stroke: #2a3040 }
    .title, .end-text { fill: #eef1f8 } .end { stroke: #eef1f8 }
    .inside { fill: #ffffff }
    .own { fill: #5c8ae6 } .stolen { fill: #f0953f }
    .theft { stroke: #ee77b5 } .tip { fill: #ee77b5 }
    .ideal { stroke: #35c79c } .ideal-text { fill: #35c79c }
  }
";

impl Chart<'_> {
    /// The SVG document.
    ///
    /// # Panics
    /// If a bar or a steal has an unknown lane.
    #[must_use]
    pub fn svg(&self) -> String {
        let frame = Frame::new(self);
        let (width, height) = (WIDTH, frame.bottom + FOOT);
        let mut out = SvgWriter::new(width, height, self.title, STYLE);
        let tip = (frame.lane * 0.5).clamp(4.0, 7.0);
        out.element("defs").begin();
        let marker = out.element("marker").attr("id", "tip").attr("viewBox", "0 0 8 8");
        let marker = marker.attr("refX", 7).attr("refY", 4).attr("markerWidth", tip);
        let marker = marker.attr("markerHeight", tip).attr("markerUnits", "userSpaceOnUse");
        marker.attr("orient", "auto").begin();
        out.element("path").class("tip").attr("d", "M0 0.5 8 4 0 7.5z").empty();
        out.end();
        out.end();
        out.element("rect").class("paper").attr("width", width).attr("height", height).empty();
        self.draw_lanes(&frame, &mut out);
        draw_axis(&frame, &mut out);
        self.draw_bars(&frame, &mut out);
        self.draw_thefts(&frame, &mut out);
        self.draw_ends(&frame, &mut out);
        self.draw_head(&mut out);
        out.finish()
    }

    fn draw_lanes(&self, frame: &Frame, out: &mut SvgWriter) {
        let (left, width) = (frame.left, frame.right - frame.left);
        for place in (0..self.lanes.len()).step_by(2) {
            let (top, height) = (frame.top_of(place), frame.lane);
            let stripe = out.element("rect").class("stripe").attr("x", left).attr("y", top);
            stripe.attr("width", width).attr("height", height).empty();
        }
        let class = if frame.lane < 13.0 { "small" } else { "lane" };
        // If lanes are too low for a name each, every second, fifth, tenth... has one.
        let spaced = |every: &usize| *every as f64 * frame.lane >= 11.0;
        let every = [1, 2, 5, 10].into_iter().find(spaced).unwrap_or(20);
        for (place, lane) in self.lanes.iter().enumerate().step_by(every) {
            let (x, y) = (left - 8.0, frame.middle_of(place) + 3.5);
            let name = out.element("text").class(class).attr("x", x);
            name.attr("y", tenths(y)).attr("text-anchor", "end").text(&lane.name);
        }
    }

    fn draw_bars(&self, frame: &Frame, out: &mut SvgWriter) {
        let strips = self.strips(frame);
        let has_room = frame.lane >= 15.0 && strips.len() <= 2_000;
        let inset = (frame.lane * 0.12).clamp(0.4, 3.0);
        for strip in &strips {
            let Strip { lane, start, end, .. } = *strip;
            let (x, width) = (frame.x(start), frame.x(end) - frame.x(start));
            // A gap between neighbours, but no invisible bars.
            let is_one = strip.jobs == 1;
            let drawn = if is_one && width > 3.0 { width - 0.6 } else { width.max(0.4) };
            let (y, height) = (frame.top_of(lane) + inset, frame.lane - 2.0 * inset);
            let (class, tooltip) = (strip.class(), self.tooltip(strip));
            let mut bar = out.element("rect").class(class).attr("x", format_args!("{x:.2}"));
            bar = bar.attr("y", tenths(y)).attr("width", format_args!("{drawn:.2}"));
            bar = bar.attr("height", tenths(height));
            if is_one && drawn > 6.0 && height > 6.0 {
                bar = bar.attr("rx", 2);
            } else if strip.share() < 0.95 {
                // Merged bars with gaps between them are paler.
                bar = bar.attr("opacity", format_args!("{:.2}", 0.3 + 0.7 * strip.share()));
            }
            bar.title(tooltip);
            if has_room && is_one {
                let name = (self.name)(strip.job);
                if drawn > 6.2 * name.chars().count() as f64 + 8.0 {
                    let (x, y) = (x + drawn / 2.0, frame.middle_of(lane) + 3.5);
                    let text = out.element("text").class("inside").attr("x", tenths(x));
                    let text = text.attr("y", tenths(y)).attr("text-anchor", "middle");
                    text.attr("pointer-events", "none").text(name);
                }
            }
        }
    }

    /// The bars by lane and time. If they are too many, neighbours that are thinner than a pixel
    /// and less than a pixel apart become one; if there are still too many, two pixels, and so on.
    fn strips(&self, frame: &Frame) -> Vec<Strip> {
        let mut strips: Vec<Strip> = self.bars.iter().map(Strip::of).collect();
        strips.sort_unstable_by_key(|strip| (strip.lane, strip.start, strip.end, strip.job));
        let mut thin = frame.per_pixel;
        while strips.len() > BARS_MAX {
            let mut merged: Vec<Strip> = Vec::with_capacity(strips.len());
            for strip in strips {
                match merged.last_mut() {
                    Some(last) if last.takes(&strip, thin) => last.merge(&strip),
                    _ => merged.push(strip),
                }
            }
            strips = merged;
            thin *= 2;
        }
        strips
    }

    fn tooltip(&self, strip: &Strip) -> String {
        let Strip { start, end, jobs, busy, stolen, .. } = *strip;
        let (from, to) = (span_text(start), span_text(end));
        if jobs == 1 {
            let stolen = if stolen.is_zero() { "" } else { ", stolen" };
            let name = (self.name)(strip.job);
            return format!("{name}: {from} to {to} ({}){stolen}", span_text(busy));
        }
        format!("{jobs} jobs: {from} to {to}")
    }

    fn draw_thefts(&self, frame: &Frame, out: &mut SvgWriter) {
        let arrows = self.arrows(frame);
        // Few arrows should be clearly visible; many must not hide the bars.
        let (opacity, stroke) = match arrows.len() {
            0..=60 => (0.95, 1.4),
            61..=300 => (0.7, 1.1),
            301..=1_000 => (0.4, 0.8),
            _ => (0.3, 0.6),
        };
        out.element("g").attr("opacity", opacity).attr("stroke-width", stroke).begin();
        for arrow in &arrows {
            let ChartTheft { at, from, to, jobs } = *arrow;
            let (x, above, below) = (frame.x(at), frame.middle_of(from), frame.middle_of(to));
            // Bent to the left, so that arrows at the same time stay apart from their bars.
            let bend = ((below - above).abs() * 0.18).clamp(4.0, 26.0);
            let (low, high) = (above + (below - above) * 0.25, above + (below - above) * 0.75);
            let bent = x - bend;
            let (victim, thief) = (&self.lanes[from].name, &self.lanes[to].name);
            let noun = if jobs == 1 { "job" } else { "jobs" };
            let when = span_text(at);
            let curve = format_args!(
                "M{x:.1} {above:.1}C{bent:.1} {low:.1} {bent:.1} {high:.1} {x:.1} {below:.1}"
            );
            let arrow = out.element("path").class("theft").attr("marker-end", "url(#tip)");
            let title = format_args!("{thief} took {jobs} {noun} from {victim} at {when}");
            arrow.attr("d", curve).title(title);
        }
        out.end();
    }

    /// The thefts by time. If they are too many, those between the same two lanes within a pixel
    /// become one; if there are still too many, within two, and so on.
    fn arrows(&self, frame: &Frame) -> Vec<ChartTheft> {
        let mut arrows = self.thefts.to_vec();
        arrows.sort_unstable_by_key(|theft| (theft.from, theft.to, theft.at));
        let mut near = frame.per_pixel;
        while arrows.len() > ARROWS_MAX && near <= 2 * frame.end {
            arrows.dedup_by(|later, first| {
                let same = (first.from, first.to) == (later.from, later.to);
                let is_near = same && later.at - first.at <= near;
                if is_near {
                    first.jobs += later.jobs;
                }
                is_near
            });
            near *= 2;
        }
        // If one arrow per pair of lanes is still too many, the largest ones stay.
        arrows.sort_by_key(|theft| std::cmp::Reverse(theft.jobs));
        arrows.truncate(ARROWS_MAX);
        arrows.sort_by_key(|theft| theft.at);
        arrows
    }

    /// The line at the ideal end and the line at the real one, labelled above the lanes.
    fn draw_ends(&self, frame: &Frame, out: &mut SvgWriter) {
        let ideal = format!("ideal {}", span_text(self.ideal));
        let makespan = format!("makespan {}", span_text(self.makespan));
        // The line further right is longer, so that its label does not touch the other line.
        let (low, high) = (8.0, 24.0);
        let (first, second) = if self.ideal > self.makespan { (high, low) } else { (low, high) };
        let ends = [(self.ideal, "ideal", ideal, first), (self.makespan, "end", makespan, second)];
        for (at, class, label, above) in ends {
            let (x, top, bottom) = (frame.x(at), frame.top - above, frame.bottom);
            let line = out.element("line").class(class).attr("x1", tenths(x));
            line.attr("x2", tenths(x)).attr("y1", tenths(top)).attr("y2", tenths(bottom)).empty();
            // On the side with more space.
            let is_right = x > WIDTH / 2.0;
            let (x, anchor) = if is_right { (x - 6.0, "end") } else { (x + 6.0, "start") };
            let y = top + 8.0;
            let text = out.element("text").class(&format!("{class}-text")).attr("x", tenths(x));
            text.attr("y", tenths(y)).attr("text-anchor", anchor).text(label);
        }
    }

    /// The heading, the figures in one line, and the legend.
    fn draw_head(&self, out: &mut SvgWriter) {
        out.element("text").class("title").attr("x", MARGIN).attr("y", 38).text(self.title);
        let stolen: usize = self.thefts.iter().map(|theft| theft.jobs).sum();
        let (jobs, thefts) = (grouped(self.bars.len()), grouped(self.thefts.len()));
        let mut figures = format!("{jobs} jobs, {thefts} thefts of {} jobs", grouped(stolen));
        if !self.ideal.is_zero() {
            let ratio = self.makespan.as_secs_f64() / self.ideal.as_secs_f64();
            let _ = write!(figures, ", {ratio:.3} × ideal");
        }
        out.element("text").attr("x", MARGIN).attr("y", 62).text(figures);
        let mut x = WIDTH - MARGIN - 292.0;
        for (class, label, width) in [("own", "claimed", 82.0), ("stolen", "stolen", 74.0)] {
            let sample = out.element("rect").class(class).attr("x", x).attr("y", 52);
            sample.attr("width", 14).attr("height", 12).attr("rx", 2).empty();
            out.element("text").attr("x", x + 20.0).attr("y", 62).text(label);
            x += width;
        }
        let arrow = out.element("path").class("theft").attr("stroke-width", 1.4);
        arrow.attr("marker-end", "url(#tip)").attr("d", format_args!("M{x} 58h20")).empty();
        out.element("text").attr("x", x + 26.0).attr("y", 62).text("theft");
        x += 72.0;
        out.element("path").class("ideal").attr("d", format_args!("M{x} 58h22")).empty();
        out.element("text").attr("x", x + 28.0).attr("y", 62).text("ideal");
    }
}

/// A coordinate, to a tenth of a pixel.
fn tenths(number: f64) -> impl std::fmt::Display {
    std::fmt::from_fn(move |formatter| write!(formatter, "{number:.1}"))
}

fn draw_axis(frame: &Frame, out: &mut SvgWriter) {
    let (left, right, top, bottom) = (frame.left, frame.right, frame.top, frame.bottom);
    let (step, unit) = step(frame.end);
    let mut at = Duration::ZERO;
    while at <= frame.end {
        let (x, y) = (frame.x(at), bottom + 20.0);
        let tick = out.element("line").class("rule").attr("x1", tenths(x)).attr("x2", tenths(x));
        tick.attr("y1", top).attr("y2", bottom + 5.0).empty();
        let label = out.element("text").attr("x", tenths(x)).attr("y", y);
        label.attr("text-anchor", "middle").text(unit.text(at));
        at += step;
    }
    let axis = out.element("line").class("rule").attr("x1", left).attr("x2", right);
    axis.attr("y1", bottom).attr("y2", bottom).empty();
}

/// The layout of the page.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The height of a lane.
    lane: f64,
    /// The end of the axis.
    end: Duration,
    per_pixel: Duration,
}

impl Frame {
    fn new(chart: &Chart<'_>) -> Self {
        let lanes = chart.lanes.len();
        let lane = match lanes {
            0..=12 => 30.0,
            13..=40 => 18.0,
            41..=80 => 12.0,
            81..=200 => 7.0,
            _ => 4.0,
        };
        let longest = chart.lanes.iter().map(|lane| lane.name.chars().count()).max();
        let names = longest.unwrap_or(0).min(24) as f64 * 6.8 + 8.0;
        let (left, right) = (MARGIN + names, WIDTH - MARGIN);
        let ends = chart.bars.iter().map(|bar| bar.end).max().into_iter();
        let end = ends.chain([chart.makespan, chart.ideal, Duration::from_micros(1)]).max();
        let end = end.expect("one of four");
        let per_pixel = end.div_f64(right - left).max(Duration::from_nanos(1));
        Self { left, right, top: HEAD, bottom: HEAD + lane * lanes as f64, lane, end, per_pixel }
    }

    fn x(&self, at: Duration) -> f64 {
        self.left + (self.right - self.left) * at.div_duration_f64(self.end)
    }

    fn top_of(&self, lane: usize) -> f64 {
        self.top + self.lane * lane as f64
    }

    fn middle_of(&self, lane: usize) -> f64 {
        self.top_of(lane) + self.lane / 2.0
    }
}

/// One bar, or several merged ones that are too thin to be drawn separately.
#[derive(Clone, Copy)]
struct Strip {
    lane: usize,
    start: Duration,
    end: Duration,
    job: usize,
    jobs: usize,
    busy: Duration,
    stolen: Duration,
}

impl Strip {
    fn of(bar: &ChartBar) -> Self {
        let ChartBar { lane, start, end, job, stolen } = *bar;
        let busy = end.saturating_sub(start);
        // A stolen job without any duration still counts as stolen.
        let least = busy.max(Duration::from_nanos(1));
        let stolen = if stolen { least } else { Duration::ZERO };
        Self { lane, start, end, job, jobs: 1, busy, stolen }
    }

    fn takes(&self, next: &Self, thin: Duration) -> bool {
        let is_thin = |strip: &Self| strip.jobs > 1 || strip.busy <= thin;
        let is_near = next.start.saturating_sub(self.end) <= thin;
        // Only up to a few pixels, or a whole lane of short jobs would become one bar.
        let is_short = next.end.saturating_sub(self.start) <= 4 * thin;
        self.lane == next.lane && is_thin(self) && is_thin(next) && is_near && is_short
    }

    fn merge(&mut self, next: &Self) {
        self.end = self.end.max(next.end);
        self.jobs += next.jobs;
        self.busy += next.busy;
        self.stolen += next.stolen;
    }

    /// How much of its time was spent on jobs.
    fn share(&self) -> f64 {
        let span = self.end.saturating_sub(self.start);
        if span.is_zero() { 1.0 } else { self.busy.div_duration_f64(span) }
    }

    /// The colour of most of its time.
    fn class(&self) -> &'static str {
        if self.stolen * 2 > self.busy { "stolen" } else { "own" }
    }
}

/// The unit of the axis.
#[derive(Clone, Copy)]
enum Unit {
    Micros,
    Millis,
    Seconds,
    Minutes,
    Hours,
}

impl Unit {
    fn span(self) -> Duration {
        match self {
            Self::Micros => Duration::from_micros(1),
            Self::Millis => Duration::from_millis(1),
            Self::Seconds => Duration::from_secs(1),
            Self::Minutes => Duration::from_secs(60),
            Self::Hours => Duration::from_secs(3_600),
        }
    }

    fn text(self, at: Duration) -> String {
        let word = match self {
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Minutes => "min",
            Self::Hours => "h",
        };
        let count = at.div_duration_f64(self.span());
        // At most three decimals, without trailing zeros.
        let text = format!("{count:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if at.is_zero() { "0".into() } else { format!("{text} {word}") }
    }
}

/// The distance of ticks on an axis of this length: about ten ticks, at round numbers.
fn step(end: Duration) -> (Duration, Unit) {
    use Unit::{Hours, Micros, Millis, Minutes, Seconds};
    let decimal: &[u32] = &[1, 2, 5, 10, 20, 50, 100, 200, 500];
    let of_sixty: &[u32] = &[1, 2, 5, 10, 15, 30];
    let ladder = [
        (Micros, decimal),
        (Millis, decimal),
        (Seconds, of_sixty),
        (Minutes, of_sixty),
        (Hours, &[1, 2, 4, 6, 12, 24, 48, 120, 240, 480, 960, 2_400, 9_600, 96_000, 960_000]),
    ];
    let steps = ladder
        .iter()
        .flat_map(|&(unit, counts)| counts.iter().map(move |&count| (unit.span() * count, unit)));
    let mut fitting = steps.filter(|&(step, _)| end.div_duration_f64(step) <= 12.0);
    let (step, unit) = fitting.next().unwrap_or((end.max(Hours.span()), Hours));
    let unit = if matches!(unit, Millis) && end >= 2 * Seconds.span() { Seconds } else { unit };
    (step, unit)
}

/// A duration with four digits, in a suitable unit.
fn span_text(span: Duration) -> String {
    let unit = match span {
        _ if span >= 6 * Unit::Hours.span() => Unit::Hours,
        _ if span >= 6 * Unit::Minutes.span() => Unit::Minutes,
        _ if span >= Unit::Seconds.span() => Unit::Seconds,
        _ if span >= Unit::Millis.span() => Unit::Millis,
        _ => Unit::Micros,
    };
    let count = span.div_duration_f64(unit.span());
    let places = if count < 10.0 {
        1_000.0
    } else if count < 100.0 {
        100.0
    } else {
        10.0
    };
    unit.text(unit.span().mul_f64((count * places).round() / places))
}

/// A number with thousands separators.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// `each` jobs of 10 us one after another in each lane, a stolen one now and then, a theft for
    /// it.
    struct Picture {
        lanes: usize,
        bars: Vec<ChartBar>,
        thefts: Vec<ChartTheft>,
    }

    impl Picture {
        fn new(lanes: usize, each: usize) -> Self {
            let bar = |place: usize| {
                let (lane, turn) = (place / each, (place % each) as u64);
                let (start, end) = (micros(10 * turn), micros(10 * turn + 10));
                ChartBar { lane, start, end, job: place, stolen: place.is_multiple_of(7) }
            };
            let bars: Vec<ChartBar> = (0..lanes * each).map(bar).collect();
            let theft = |bar: &ChartBar| {
                let from = (bar.lane + 1) % lanes;
                ChartTheft { at: bar.start, from, to: bar.lane, jobs: 2 }
            };
            let thefts = bars.iter().filter(|bar| bar.stolen).map(theft).collect();
            Self { lanes, bars, thefts }
        }

        fn chart(&self) -> Chart<'_> {
            let makespan = self.bars.iter().map(|bar| bar.end).max().unwrap_or_default();
            Chart {
                title: "a <b> & \"c\"",
                lanes: (1..=self.lanes)
                    .map(|lane| ChartLane { name: format!("w{lane}") })
                    .collect(),
                bars: &self.bars,
                thefts: &self.thefts,
                makespan,
                ideal: makespan,
                name: &|job| format!("<{job}>"),
            }
        }
    }

    #[test]
    fn each_job_and_each_theft_is_drawn_and_named() {
        let svg = Picture::new(2, 10).chart().svg();
        assert_eq!(svg.matches("<rect class=\"own\"").count(), 17 + 1, "and one in the legend");
        assert_eq!(svg.matches("<rect class=\"stolen\"").count(), 3 + 1);
        assert!(svg.contains("<title>&lt;7&gt;: 70 µs to 80 µs (10 µs), stolen</title>"), "{svg}");
        assert!(svg.contains("<title>w1 took 2 jobs from w2 at 70 µs</title>"), "{svg}");
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !svg.contains("<b>"));
        assert!(svg.contains("makespan 100 µs") && svg.contains("ideal 100 µs"));
    }

    #[test]
    fn an_empty_chart_can_be_drawn() {
        for lanes in 0..3 {
            let svg = Picture { lanes, bars: Vec::new(), thefts: Vec::new() }.chart().svg();
            assert!(svg.contains("0 jobs, 0 thefts of 0 jobs") && !svg.contains("NaN"));
        }
    }

    #[test]
    fn many_jobs_and_thefts_are_drawn_in_few_elements() {
        for (lanes, each) in [(2, 100_000), (200, 1_000), (1_000, 200)] {
            let picture = Picture::new(lanes, each);
            let chart = picture.chart();
            let strips = chart.strips(&Frame::new(&chart));
            let jobs: usize = strips.iter().map(|strip| strip.jobs).sum();
            assert_eq!(jobs, lanes * each, "no job is missing");
            let svg = chart.svg();
            let elements = svg.matches('<').count() - svg.matches("</").count();
            assert!(elements <= 50_000, "{elements} for {lanes} lanes");
        }
    }

    #[test]
    fn ticks_are_round_and_about_ten() {
        for (end, tick, last) in [
            (micros(9), "1 µs", "9 µs"),
            (micros(1_100), "100 µs", "1100 µs"),
            (Duration::from_millis(730), "100 ms", "700 ms"),
            (Duration::from_millis(2_100), "0.2 s", "2 s"),
            (Duration::from_secs(47), "5 s", "45 s"),
            (Duration::from_secs(600), "1 min", "10 min"),
            (Duration::from_secs(5 * 3_600), "30 min", "300 min"),
            (Duration::from_secs(86_400), "2 h", "24 h"),
            (Duration::from_secs(1_000 * 365 * 86_400), "960000 h", "8640000 h"),
        ] {
            let (step, unit) = step(end);
            let count = end.div_duration_f64(step).floor() as u32;
            assert!((4..=12).contains(&count), "{count} ticks to {end:?}");
            assert_eq!(unit.text(step), tick);
            assert_eq!(unit.text(step * count), last);
        }
    }
}
