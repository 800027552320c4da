// SPDX-License-Identifier: MIT
//! Quantiles of the gamma distribution.

/// From this shape on the cube root of a gamma variable is normal to four digits (Wilson and Hilferty).
const LARGE: f64 = 100.0;

/// What a gamma variable of this shape and of scale 1 is below with this probability, of 2.5 % or 97.5 %. A shape
/// of 0 or less is no variable: it is 0.
pub(super) fn quantile(shape: f64, part: f64) -> f64 {
    if shape <= 0.0 {
        return 0.0;
    }
    if shape >= LARGE {
        let normal = if part < 0.5 { -1.959_964 } else { 1.959_964 };
        let root = 1.0 - 1.0 / (9.0 * shape) + normal / (3.0 * shape.sqrt());
        return shape * root * root * root;
    }
    // In halves of the logarithm: the lower quantiles of small shapes lie close to 0.
    let (mut low, mut high) = (1e-30_f64, 4.0 * LARGE);
    for _ in 0..64 {
        let middle = (low * high).sqrt();
        *(if below(shape, middle) < part { &mut low } else { &mut high }) = middle;
    }
    high
}

/// The probability that a gamma variable is below `x`: the regularized incomplete gamma function.
fn below(shape: f64, x: f64) -> f64 {
    const TERMS: u32 = 2000;
    const ENOUGH: f64 = 1e-12;
    let front = (shape * x.ln() - x - libm::lgamma(shape)).exp();
    if x < shape + 1.0 {
        let mut term = 1.0 / shape;
        let mut sum = term;
        for n in 1..TERMS {
            term *= x / (shape + f64::from(n));
            sum += term;
            if term < sum * ENOUGH {
                break;
            }
        }
        return front * sum;
    }
    // The continued fraction of what lies above, by the method of Lentz.
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for n in 1..TERMS {
        let n = f64::from(n);
        let a = -n * (n - shape);
        b += 2.0;
        d = 1.0 / (a * d + b);
        c = b + a / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < ENOUGH {
            break;
        }
    }
    1.0 - front * fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of tables of chi-square: half of it with twice as many degrees of freedom.
    #[test]
    fn quantiles_as_tables_have_them() {
        for (shape, low, high) in [
            (0.5, 0.000_491, 2.511_94),
            (1.0, 0.025_318, 3.688_88),
            (2.0, 0.242_209, 5.571_64),
            (5.0, 1.623_49, 10.241_6),
            (15.0, 8.395_39, 23.489_6),
            (50.0, 37.111, 64.780_6),
        ] {
            for (part, right) in [(0.025, low), (0.975, high)] {
                let found = quantile(shape, part);
                assert!((found / right - 1.0).abs() < 2e-3, "{shape} {part}: {found}, {right} is right");
            }
        }
    }

    #[test]
    fn both_ways_meet() {
        for part in [0.025, 0.975] {
            let (below, above) = (quantile(LARGE - 1e-9, part), quantile(LARGE, part));
            assert!((below / above - 1.0).abs() < 1e-4, "{below} {above}");
        }
        assert_eq!(quantile(0.0, 0.975), 0.0);
        assert_eq!(quantile(-1.0, 0.975), 0.0);
        // So unlikely to be there at all that it is not.
        assert!(quantile(1e-4, 0.975) < 1e-20);
    }
}
