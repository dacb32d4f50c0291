/// Student's t distribution, for intervals around forecasts.
///
///     density f(t) = C (1 + t^2/n)^(-(n+1)/2),   C = Gamma((n+1)/2) / (sqrt(n pi) Gamma(n/2))
///     P(|T| > t) = I_x(n/2, 1/2),  x = n / (n + t^2)     (I: the regularised incomplete beta)
///
/// n, the degrees of freedom, is any number above 0.
#pragma once

namespace ttr::forecasting {

/// P(|T| <= t) for t >= 0, by the continued fraction of I (DLMF 8.17.22). Relative error some 1e-13
/// for n up to 1e4; the number of terms grows as sqrt(n).
double StudentInside(double t, double degrees);

/// The t with P(|T| <= t) = level, level in (0, 1): half the width of an interval in standard
/// errors. Newton on log P(|T| > t) in log t (for levels below 1/2 on log P(|T| <= t)), which is
/// concave, so that it converges from any start; from 2000 degrees on Fisher and Cornish's
/// expansion around the normal quantile (Abramowitz and Stegun 26.7.5). Relative error below 1e-12
/// for levels up to 1 - 1e-9. Infinity where t is beyond all doubles. Throws Error for arguments
/// out of range.
double StudentQuantile(double level, double degrees);

}  // namespace ttr::forecasting
