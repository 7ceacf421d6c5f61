//! The exponential and what is made of it, as branchless code that the compiler can vectorise.
//!
//! In: one f32. Out: e^x within 2 ulp over the whole range, subnormals included; the logistic function; the hyperbolic
//! tangent; the normal distribution's cdf. NaN stays NaN.

/// Above, e^x is infinite; below `LOWEST` it rounds to 0.
const HIGHEST: f32 = 88.8;
const LOWEST: f32 = -104.5;

/// ln 2 in two parts; a whole number below 2^9 times the first is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Adding this to a number below 2^22 rounds it to a whole one, which then stands in the lowest bits.
const ROUNDER: f32 = 12_582_912.0;

/// `e^x = 2^n e^r` with `x = n ln 2 + r` and r in +-ln 2 / 2: e^r, and n in the lowest bits of a float.
///
/// `e^r = 1 + r + r^2 Q(r)`, Q of degree 4 with the least greatest relative error, 3.1e-9. Products that something is
/// added to are fused, here and below: twice the speed where the machine can, the same bits where it cannot.
#[inline(always)]
#[allow(clippy::excessive_precision)]
fn mantissa_and_exponent(x: f32) -> (f32, f32) {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let mut q = 1.381_454_3e-3;
    for factor in [8.368_748_7e-3, 4.166_839_1e-2, 1.666_652_04e-1, 4.999_999_34e-1] {
        q = r.mul_add(q, factor);
    }
    ((q * r).mul_add(r, r) + 1.0, shifted)
}

/// e^x.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let x = if x > HIGHEST { HIGHEST } else { x };
    let x = if x < LOWEST { LOWEST } else { x };
    let (mantissa, shifted) = mantissa_and_exponent(x);
    // 2^n as two factors, each a normal number, so that the result may be subnormal or infinite.
    let n = shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed();
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23).cast_unsigned());
    mantissa * power(half) * power(n - half)
}

/// e^x for x that is at most about 0, as in a softmax; what would be subnormal is e^-87 instead, some 1e-38.
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    let (mantissa, shifted) = mantissa_and_exponent(if x < -87.0 { -87.0 } else { x });
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23);
    mantissa * power
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `1 / (1 + e^-x)` and 1 minus that, both to the last digits: for slopes, which would lose them in the difference.
#[inline(always)]
pub(crate) fn logistic_and_rest(x: f32) -> (f32, f32) {
    // Where e^-x would be infinite the first is as good as 0, and the second must not become NaN.
    let e = exp(if x < -87.0 { 87.0 } else { -x });
    let s = 1.0 / (1.0 + e);
    (s, e * s)
}

/// The hyperbolic tangent within 3 ulp. Below 0.625 `x + x^3 P(x^2)`, P interpolating at the Chebyshev nodes, within 7e-10;
/// else `1 - 2 / (e^2x + 1)`.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub(crate) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let mut near = 2.292_744_8e-3;
    for factor in [-8.343_945_5e-3, 2.176_891_87e-2, -5.395_925_96e-2, 1.333_330_36e-1, -3.333_333_32e-1] {
        near = square.mul_add(near, factor);
    }
    let magnitude = x.abs();
    let far = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
    if magnitude < 0.625 { (x * square).mul_add(near, x) } else { far.copysign(x) }
}

/// The part of the standard normal distribution below x, and its density at x.
///
/// Near 0: `1/2 + x P(x^2)`, P interpolating at the Chebyshev nodes of [0, 2], within 6e-10. Else
/// `erfc(z) = t exp(-z^2 + P(t))`, `t = 1 / (1 + z / 2)`, for `z = |x| / sqrt 2` (W. Press et al., Numerical Recipes,
/// section 6.2), within 1.2e-7 relatively, half of which is the cdf's tail.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub(crate) fn normal_cdf_and_density(x: f32) -> (f32, f32) {
    let square = x * x;
    let mut near = 4.350_847_4e-7;
    for factor in
        [-8.857_467_3e-6, 1.146_637_2e-4, -1.186_799_7e-3, 9.973_382_9e-3, -6.649_035_8e-2, 3.989_422_8e-1]
    {
        near = square.mul_add(near, factor);
    }
    let t = 1.0 / (1.0 + 0.5 * std::f32::consts::FRAC_1_SQRT_2 * x.abs());
    let mut p = 0.170_872_77;
    for factor in [
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ] {
        p = t.mul_add(p, factor);
    }
    let bell = exp(-0.5 * square);
    // Not exp of the sum of both arguments: the large one would cost the small one its last digits.
    let tail = 0.5 * t * bell * exp(p);
    let far = if x > 0.0 { 1.0 - tail } else { tail };
    (if square < 2.0 { 0.5 + x * near } else { far }, bell * 0.398_942_28)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use kernwright_plan::float::Float;

    fn ulp(value: f64) -> f64 {
        let value = (value.abs() as f32).max(f32::MIN_POSITIVE);
        f64::from(f32::from_bits(value.to_bits() + 1)) - f64::from(value)
    }

    /// Every 997th float of the range in which the result is neither 0 nor infinite.
    fn range(low: f32, high: f32) -> impl Iterator<Item = f32> {
        let negative = (0..=(-low).to_bits()).step_by(997).map(|bits| -f32::from_bits(bits));
        negative.chain((0..=high.to_bits()).step_by(997).map(f32::from_bits))
    }

    #[test]
    fn exp_is_within_two_ulp() {
        let mut worst = 0.0_f64;
        for x in range(-103.9, 88.72) {
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / ulp(exact));
            if (-86.9..=0.0).contains(&x) {
                worst = worst.max((f64::from(exp_of_negative(x)) - exact).abs() / ulp(exact));
            }
        }
        assert!(worst < 2.0, "{worst} ulp");
    }

    #[test]
    fn exp_keeps_the_limits() {
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan() && exp_of_negative(f32::NAN).is_nan());
        assert!(exp_of_negative(f32::NEG_INFINITY) < 2e-38);
    }

    #[test]
    fn tanh_is_within_three_ulp() {
        let mut worst = 0.0_f64;
        for x in range(-30.0, 30.0) {
            let exact = f64::from(x).tanh();
            worst = worst.max((f64::from(tanh(x)) - exact).abs() / ulp(exact));
        }
        assert!(worst < 3.0, "{worst} ulp");
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn logistic_and_cdf_are_within_a_few_ulp_of_one() {
        for x in range(-40.0, 40.0) {
            let exact = (1.0 + f64::from(x).exp()).recip();
            let rest = f64::from(logistic_and_rest(x).1);
            assert!((rest - exact).abs() <= 4e-7 * exact, "{x} {rest} {exact}");
            let exact = (1.0 + (-f64::from(x)).exp()).recip();
            assert!((f64::from(logistic(x)) - exact).abs() <= 2e-7 * exact, "{x}");
            let exact = 0.5 * (1.0 + Float::erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            let (cdf, density) = normal_cdf_and_density(x);
            assert!((f64::from(cdf) - exact).abs() <= 1.2e-7, "{x} {cdf} {exact}");
            let exact = (-0.5 * f64::from(x) * f64::from(x)).exp() / (2.0 * std::f64::consts::PI).sqrt();
            assert!((f64::from(density) - exact).abs() <= 7e-8, "{x}");
        }
    }
}
