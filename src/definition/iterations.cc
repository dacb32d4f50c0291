#include "src/definition/iterations.h"

#include <algorithm>
#include <limits>

namespace ttr::definition {

Iterate GradientDescent(const Matrix& a, const Preconditioning& p, const Vector& eta,
                        double momentum, const Vector& q) {
  Vector x = Vector::Zero(q.size());
  Vector d = x;
  for (const double size : eta) {
    d = p.Apply(q - a * x) + momentum * d;
    x += size * d;
  }
  return {x, eta.size()};
}

Iterate ConjugateGradient(const Matrix& a, const Preconditioning& p, const Vector& q,
                          const Optimizer& optimizer) {
  const double asked = optimizer.tolerance;
  const double goal = std::max(asked, std::numeric_limits<double>::epsilon()) * q.norm();
  Vector x = Vector::Zero(q.size());
  Vector r = q;
  Vector z = p.Apply(r);
  Vector d = z;
  double rz = r.dot(z);
  const double rounding = 4 * std::numeric_limits<double>::epsilon();
  double gain = 0;  // the largest r.z / r.r: as much of |P| as is seen
  std::int64_t n = 0;
  for (; n < optimizer.steps && !(r.norm() <= goal); ++n) {
    if (rz <= rounding * gain * r.squaredNorm()) return {x, n, Status::kNotConverged};
    gain = std::max(gain, rz / r.squaredNorm());
    const Vector ad = a * d;
    const double curvature = d.dot(ad);
    const double nothing = rounding * a.trace() * d.squaredNorm();
    if (curvature <= nothing) return {x, n + 1, Status::kNotConverged};
    const double alpha = rz / curvature;
    x += alpha * d;
    r -= alpha * ad;
    z = p.Apply(r);
    const double next = r.dot(z);
    d = z + (next / rz) * d;
    rz = next;
  }
  // A tolerance of 0 asks for `steps` iterations, whatever they reach.
  const bool missed = asked > 0 && r.norm() > goal;
  return {x, n, missed ? Status::kNotConverged : Status::kSolved};
}

}  // namespace ttr::definition
