//! What is done to a curve before it is drawn: smoothing, thinning, cutting where it has no value.
//!
//! In: points by rising tokens, whose losses need not be numbers. Out: points, and the range of losses to show.

use std::ops::Range;

/// A number of tokens and a loss.
pub(super) type Point = (f64, f64);

/// About as many points of a curve as are drawn.
const N_DRAWN: usize = 1600;

/// A loss too large to mean anything. It is not averaged, since it would drown all others.
const ABSURD: f64 = 1e6;

/// Points from which a curve has enough of them to be smoothed.
pub(super) const N_SMOOTHED: usize = 60;

/// The mean over a window around each point, of a thirtieth of the run. It is narrower near the start, where losses
/// fall steeply, and ends with the run. Points that are not numbers stay so and are left out.
pub(super) fn smoothed(points: &[Point]) -> Vec<Point> {
    let mut sums = vec![(0.0, 0usize)];
    for (_, loss) in points {
        let (sum, n) = sums[sums.len() - 1];
        sums.push(if loss.abs() < ABSURD { (sum + loss, n + 1) } else { (sum, n) });
    }
    let last = points.len().saturating_sub(1);
    let smooth = |(i, point): (usize, &Point)| {
        let reach = (i / 5).min(points.len() / N_SMOOTHED);
        let (before, after) = (sums[i - reach], sums[(i + reach).min(last) + 1]);
        let n = after.1 - before.1;
        let mean = if n > 0 { (after.0 - before.0) / n as f64 } else { point.1 };
        (point.0, if point.1.is_finite() { mean } else { f64::NAN })
    };
    points.iter().enumerate().map(smooth).collect()
}

/// The stretches of a curve that are numbers.
pub(super) fn segments(points: &[Point]) -> impl Iterator<Item = &[Point]> {
    points.split(|point| !point.1.is_finite()).filter(|points| !points.is_empty())
}

/// A curve of few points that looks the same: of each bucket, its lowest and its highest.
pub(super) fn thinned(points: &[Point]) -> Vec<Point> {
    if points.len() <= N_DRAWN {
        return points.to_vec();
    }
    let mut kept = Vec::new();
    for bucket in points.chunks(points.len().div_ceil(N_DRAWN / 2)) {
        let by_loss = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
        if let (Some(low), Some(high)) = (bucket.iter().min_by(by_loss), bucket.iter().max_by(by_loss)) {
            let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            kept.push(*first);
            if first.0 < second.0 {
                kept.push(*second);
            }
        }
    }
    kept
}

/// The losses to show: all of `shown`, and those of the `raw` curve but for the outermost hundredth.
pub(super) fn range(raw: &[Point], shown: impl Iterator<Item = f64>) -> Range<f64> {
    let mut raw: Vec<f64> = raw.iter().map(|point| point.1).filter(|loss| loss.is_finite()).collect();
    raw.sort_by(f64::total_cmp);
    let cut = raw.len() / 200;
    let kept = &raw[cut..raw.len() - cut];
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for loss in kept.iter().copied().chain(shown.filter(|loss| loss.is_finite())) {
        (low, high) = (low.min(loss), high.max(loss));
    }
    if low > high {
        return 0.0..1.0;
    }
    // A curve without height lies in the middle.
    let margin = if high - low > 1e-9 * high.abs() { 0.05 * (high - low) } else { 0.1 * high.abs().max(1.0) };
    low - margin..high + margin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_a_line_and_removes_noise() {
        let line: Vec<Point> = (0..600).map(|i| (f64::from(i), 5.0 - 0.01 * f64::from(i))).collect();
        for (i, (found, expected)) in smoothed(&line).iter().zip(&line).enumerate() {
            let allowed = if i < 590 { 1e-9 } else { 0.051 };
            assert!((found.1 - expected.1).abs() < allowed, "{found:?} {expected:?}");
        }
        let noisy: Vec<Point> = (0..600).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let smooth = smoothed(&noisy);
        assert_eq!(smooth[0], noisy[0]);
        assert!(smooth[50..].iter().all(|point| (point.1 - 0.5).abs() < 0.051));
    }

    #[test]
    fn points_that_are_not_numbers_cut_the_curve_and_nothing_else() {
        let mut points: Vec<Point> = (0..600).map(|i| (f64::from(i), 2.0)).collect();
        points[0].1 = f64::NAN;
        points[100].1 = 1e30;
        points[300].1 = f64::INFINITY;
        let smooth = smoothed(&points);
        assert!(segments(&smooth).flatten().all(|point| point.1 == 2.0));
        assert_eq!(segments(&smooth).map(<[Point]>::len).collect::<Vec<_>>(), [299, 299]);
    }

    #[test]
    fn thinning_keeps_order_and_extremes() {
        let mut points: Vec<Point> = (0..10_007).map(|i| (f64::from(i), f64::from(i * 37 % 101))).collect();
        (points[5000].1, points[5001].1) = (999.0, -999.0);
        let thin = thinned(&points);
        assert!(thin.len() <= N_DRAWN && thin.is_sorted_by(|a, b| a.0 < b.0));
        assert!(thin.contains(&points[5000]) && thin.contains(&points[5001]));
        assert_eq!(thinned(&points[..50]), points[..50]);
    }

    #[test]
    fn a_few_spikes_do_not_set_the_range() {
        let mut raw: Vec<Point> = (0..1000).map(|i| (f64::from(i), 2.0 + f64::from(i % 10) / 10.0)).collect();
        raw[77].1 = 1e6;
        let found = range(&raw, [1.5].into_iter());
        assert!(found.start < 1.5 && found.start > 1.0 && found.end > 2.9 && found.end < 3.5, "{found:?}");
        assert_eq!(range(&[], [].into_iter()), 0.0..1.0);
    }
}
