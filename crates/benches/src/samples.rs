//! Repeated measurements. The median is reported, because on a shared machine a few repeats suffer
//! interference, which would affect a mean.

/// The results of repeated measurements.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// Measures this many times.
    ///
    /// # Panics
    /// If the number is 0.
    pub fn take(repeats: usize, measure: impl FnMut() -> f64) -> Self {
        Self::new(core::iter::repeat_with(measure).take(repeats).collect())
    }

    /// These measurements.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "something was measured");
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> f64 {
        let (half, count) = (self.sorted.len() / 2, self.sorted.len());
        if count.is_multiple_of(2) {
            f64::midpoint(self.sorted[half - 1], self.sorted[half])
        } else {
            self.sorted[half]
        }
    }

    /// The lowest and the highest.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        (self.sorted[0], self.sorted[self.sorted.len() - 1])
    }

    /// The highest alone.
    #[must_use]
    pub fn worst(&self) -> Self {
        Self::new(vec![self.range().1])
    }

    /// The same measurements in another unit.
    #[must_use]
    pub fn map(&self, convert: impl Fn(f64) -> f64) -> Self {
        Self::new(self.sorted.iter().copied().map(convert).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_and_the_range_at_the_ends() {
        let odd = Samples::new(vec![9.0, 1.0, 2.0]);
        assert_eq!((odd.median(), odd.range()), (2.0, (1.0, 9.0)));
        let even = Samples::new(vec![4.0, 1.0, 2.0, 9.0]);
        assert_eq!((even.median(), even.range()), (3.0, (1.0, 9.0)));
        assert_eq!(even.worst(), Samples::new(vec![9.0]));
    }

    #[test]
    fn a_conversion_may_reverse_the_order() {
        let rates = Samples::new(vec![1.0, 2.0, 4.0]).map(|seconds| 1.0 / seconds);
        assert_eq!((rates.median(), rates.range()), (0.5, (0.25, 1.0)));
    }

    #[test]
    fn the_requested_number_of_repeats_is_taken() {
        let mut count = 0.0;
        let samples = Samples::take(5, || {
            count += 1.0;
            count
        });
        assert_eq!((samples.median(), samples.range()), (3.0, (1.0, 5.0)));
    }
}
