//! The plot of the README: cost over the length of the chain.

use plotters::prelude::*;

use crate::bed::Shape;
use crate::instructions::CHAINS;
use crate::object::{self, Entry, Mode, Objects};
use crate::ticks::{self, Series};

/// Who is drawn, under which name, and in which colour.
const DRAWN: [(&str, &str, RGBColor); 7] = [
    ("post_send", "C, rdma_post_send", RGBColor(120, 120, 120)),
    ("twin_chain", "C, the same checks and contexts", RGBColor(30, 100, 200)),
    ("chain_bare", "C, a chain without checks and contexts", RGBColor(150, 190, 230)),
    ("token_chain", "nanoverbs", RGBColor(200, 60, 30)),
    ("block_chain", "nanoverbs, owned blocks", RGBColor(230, 150, 60)),
    ("raw_chain", "nanoverbs, unsafe calls", RGBColor(240, 190, 170)),
    ("sideway_chain", "sideway, classic path", RGBColor(90, 150, 90)),
];

/// Label, colour, and ticks by length.
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);

/// Ours, and one of each of C's.
fn drawn(objects: &Objects) -> impl Iterator<Item = &Entry> {
    objects.entries.iter().filter(|entry| {
        DRAWN.iter().any(|(name, _, _)| entry.name == *name)
            && (matches!(entry.compiler, "rustc" | "gcc -O3") || entry.is_of_a_crate())
    })
}

/// Ticks a request by chain length; prints the table and draws `target/bench/cost.svg`.
pub(crate) fn chains(objects: &Objects) {
    let shape = |chain| Shape { chain, round: 32, signal: 32, ..Shape::new(Mode::BlueFlame) };
    let by_length: Vec<(u32, Vec<Series>)> = CHAINS
        .iter()
        .map(|chain| {
            (*chain, ticks::measure(&objects.provider, drawn(objects), shape(*chain), 32, 1000))
        })
        .collect();
    println!(
        "{:<40} {}",
        "ticks a request, mlx5-shaped, by chain",
        CHAINS.map(|n| format!("{n:>7}")).concat()
    );
    let lines: Vec<Line> = DRAWN
        .iter()
        .map(|(name, label, colour)| {
            let points = by_length.iter().filter_map(|(chain, series)| {
                let series = series.iter().find(|s| s.entry.name == *name)?;
                Some((f64::from(*chain), series.median()))
            });
            (*label, *colour, points.collect())
        })
        .collect();
    for (label, _, points) in &lines {
        let numbers: String = points.iter().map(|(_, ticks)| format!("{ticks:>7.1}")).collect();
        println!("{label:<40} {numbers}");
    }
    println!();
    if let Err(error) = draw(&lines) {
        println!("skipped: the plot ({error})");
    }
}

fn draw(lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let path = object::out_dir().join("cost.svg");
    let top = lines.iter().flat_map(|(_, _, points)| points).map(|(_, y)| *y).fold(0.0, f64::max);
    let root = SVGBackend::new(&path, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Cost of a send of 64 bytes on a provider shaped like mlx5", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d((1.0..32.0).log_scale().base(2.0), 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("requests in a chain")
        .y_desc("time stamp ticks a request")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (label, colour, points) in lines {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(*label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    root.present()?;
    println!("written: {}", path.display());
    Ok(())
}
