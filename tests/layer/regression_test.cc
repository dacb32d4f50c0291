// Least squares over a stream beside orthogonal factors of the rows that count: windows of rows and
// of time, forgetting, ridges; what is saved; what is refused.
#include "ttr/regression.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

constexpr std::int64_t kKeys = 3, kValues = 2;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Coefficients that walk, at `offset` from 0; times at uneven distances, some of them the same.
struct Stream {
  explicit Stream(std::int64_t n, double offset = 0, std::uint64_t seed = 1) : count(n) {
    CounterRandom random(seed);
    std::vector<double> beta(kKeys * kValues);
    double time = 1e6;
    for (std::int64_t t = 0; t < n; ++t) {
      for (double& b : beta) b += .1 * random.Normal();
      for (std::int64_t i = 0; i < kKeys; ++i)
        keys.push_back(std::round(1024 * random.Normal()) / 1024);
      for (std::int64_t c = 0; c < kValues; ++c) {
        double y = .5 * random.Normal() + offset;
        for (std::int64_t i = 0; i < kKeys; ++i) y += beta[i * kValues + c] * keys[t * kKeys + i];
        values.push_back(std::round(1024 * y) / 1024);
      }
      for (std::int64_t i = 0; i < kKeys; ++i) keys[t * kKeys + i] += offset;
      weights.push_back(t % 7 == 3 ? 0 : .5 * static_cast<double>(1 + t % 3));
      times.push_back(time += t % 5 == 0 ? 0 : std::abs(random.Normal()));
    }
  }
  RegressionRows Rows(const RegressionOptions& o, std::int64_t begin, std::int64_t end) const {
    const auto part = [&](const std::vector<double>& numbers, std::int64_t width) {
      return std::span(numbers).subspan(static_cast<std::size_t>(begin * width),
                                        static_cast<std::size_t>((end - begin) * width));
    };
    return {part(keys, kKeys), part(values, kValues), part(weights, 1),
            o.has_times() ? part(times, 1) : std::span<const double>()};
  }

  std::int64_t count;
  std::vector<double> keys, values, weights, times;
};

using Wide = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;

/// Slopes of the rows that count behind row `end` - 1, by reflections, in long double.
std::vector<double> SlopesOf(const Stream& s, const RegressionOptions& o, std::int64_t end) {
  std::int64_t begin = o.window > 0 ? std::max<std::int64_t>(0, end - o.window) : 0;
  while (s.times[begin] <= s.times[end - 1] - o.span) ++begin;
  const std::int64_t n = end - begin;
  Wide rows(n, kKeys + kValues), roots(n, 1);
  long double whole = 0;
  for (std::int64_t t = begin; t < end; ++t) {
    const auto age = static_cast<long double>(end - 1 - t);
    const long double w =
        s.weights[t] * std::pow(static_cast<long double>(o.decay), age) *
        std::exp2(-static_cast<long double>(s.times[end - 1] - s.times[t]) / o.half_life);
    for (std::int64_t i = 0; i < kKeys; ++i) rows(t - begin, i) = s.keys[t * kKeys + i];
    for (std::int64_t c = 0; c < kValues; ++c)
      rows(t - begin, kKeys + c) = s.values[t * kValues + c];
    roots(t - begin, 0) = std::sqrt(w);
    whole += w;
  }
  const Wide mean = (roots.cwiseProduct(roots).transpose() * rows) / whole;
  Wide all = Wide::Zero(n + kKeys, kKeys + kValues);
  for (std::int64_t t = 0; t < n; ++t) all.row(t) = roots(t, 0) * (rows.row(t) - mean);
  const bool fades = o.ridge_fades && o.half_life == RegressionOptions::kNever;
  const auto age = static_cast<long double>(fades ? n : 0);
  const long double ridge = o.ridge * std::pow(static_cast<long double>(o.decay), age);
  for (std::int64_t i = 0; i < kKeys; ++i) all(n + i, i) = std::sqrt(ridge);
  const Wide slopes = all.leftCols(kKeys).householderQr().solve(all.rightCols(kValues));
  std::vector<double> found;
  for (std::int64_t i = 0; i < kKeys; ++i) {
    for (std::int64_t c = 0; c < kValues; ++c) found.push_back(static_cast<double>(slopes(i, c)));
  }
  return found;
}

double ErrorOf(Regression& model, const Stream& s, std::int64_t end) {
  std::vector<double> found((kKeys + 1) * kValues);
  model.Coefficients(found);
  const std::vector<double> want = SlopesOf(s, model.options(), end);
  double worst = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] - want[i]));
    size = std::max(size, std::abs(want[i]));
  }
  return worst / size;
}

RegressionOptions With(const std::function<void(RegressionOptions&)>& change) {
  RegressionOptions o{.key_dim = kKeys, .value_dim = kValues};
  change(o);
  return o;
}

std::vector<RegressionOptions> AllOptions() {
  return {With([](auto&) {}),
          With([](auto& o) { o.ridge = .5; }),
          With([](auto& o) { o.decay = .97, o.ridge = .5; }),
          With([](auto& o) { o.decay = .97, o.ridge = .5, o.ridge_fades = false; }),
          With([](auto& o) { o.half_life = 11; }),
          With([](auto& o) { o.half_life = 11, o.ridge = .5; }),
          With([](auto& o) { o.window = 10; }),
          With([](auto& o) { o.window = 37, o.decay = .97, o.ridge = .5; }),
          With([](auto& o) { o.window = 37, o.ridge = .5, o.ridge_fades = false; }),
          With([](auto& o) { o.span = 15; }),
          With([](auto& o) { o.span = 15, o.half_life = 4; }),
          With([](auto& o) { o.window = 20, o.span = 15; })};
}

TEST(Regression, IsTheBatchFitOfTheRowsThatCount) {
  for (const double offset : {0., 0x1p20}) {
    const Stream s(400, offset);
    for (std::size_t which = 0; which < AllOptions().size(); ++which) {
      Regression model(AllOptions()[which]);
      CounterRandom random(which);
      for (std::int64_t end = 0; end < 300;) {
        const std::int64_t begin = end;
        end += random.Uniform() < .07 ? 1 + static_cast<std::int64_t>(60 * random.Uniform()) : 1;
        model.Learn(s.Rows(model.options(), begin, end));
        if (end < 9) continue;
        ASSERT_LE(ErrorOf(model, s, end), 1e-11) << which << ", " << end << ", " << offset;
      }
    }
  }
}

// What bench/windows.py has of 10^7 rows, row by row.
TEST(Regression, OfAHundredThousandRowsKeepsItsDigits) {
  const Stream s(100'000, 100, 3);
  for (const auto& o : {With([](auto&) {}), With([](auto& made) { made.decay = .99; }),
                        With([](auto& made) { made.window = 100; }),
                        With([](auto& made) { made.window = 10'000; })}) {
    Regression model(o);
    for (std::int64_t t = 0; t < s.count; ++t) {
      model.Learn(s.Rows(o, t, t + 1));
      if (t % 20'011 == 20'010) {
        EXPECT_LE(ErrorOf(model, s, t + 1), 1e-11) << o.window << ", " << t;
      }
    }
    EXPECT_LE(ErrorOf(model, s, s.count), 1e-11) << o.window << ", " << o.decay;
    EXPECT_EQ(model.count(), s.count);
    EXPECT_EQ(model.held(), o.window > 0 ? o.window : s.count);
  }
}

TEST(Regression, RowsThatWereLargeLeaveNothingInAWindow) {
  Stream s(2000);
  for (std::int64_t i = 900 * kKeys; i < 950 * kKeys; ++i) s.keys[i] *= 1e9;
  const auto o = With([](auto& made) { made.window = 50; });
  Regression model(o);
  for (std::int64_t t = 0; t < 1100; ++t) {
    model.Learn(s.Rows(o, t, t + 1));
    if (t >= 1000) {
      ASSERT_LE(ErrorOf(model, s, t + 1), 1e-11) << t;
    }
  }
}

TEST(Regression, PredictsByItsCoefficients) {
  const Stream s(50, 3);
  for (const RegressionOptions& o : AllOptions()) {
    Regression model(o);
    model.Learn(s.Rows(o, 0, 50));
    std::vector<double> found((kKeys + 1) * kValues), answers(50 * kValues);
    model.Coefficients(found);
    model.Predict(s.keys, answers);
    for (std::int64_t t = 0; t < 50; ++t) {
      for (std::int64_t c = 0; c < kValues; ++c) {
        double want = found[kKeys * kValues + c];
        for (std::int64_t i = 0; i < kKeys; ++i)
          want += found[i * kValues + c] * s.keys[t * kKeys + i];
        EXPECT_NEAR(answers[t * kValues + c], want, 1e-10);
      }
    }
  }
}

// A direction that nothing excites any more: no ridge, one that fades, one that stays.
TEST(Regression, WhatFadedAwayIsAnsweredByZero) {
  for (const double half_life : {RegressionOptions::kNever, 5.}) {
    RegressionOptions o{.key_dim = 2, .ridge = 1e-3, .half_life = half_life};
    if (half_life == RegressionOptions::kNever) o.decay = .9, o.ridge_fades = false;
    Regression model(o);
    CounterRandom random(4);
    for (std::int64_t t = 0; t < 100'000; ++t) {
      const double x[] = {random.Normal(), t < 50 ? random.Normal() : 2};
      const double y[] = {3 * x[0] - x[1]}, time[] = {static_cast<double>(t)};
      RegressionRows row{.keys = x, .values = y};
      if (o.has_times()) row.times = time;
      model.Learn(row);
    }
    double slopes[3];
    model.Coefficients(slopes);
    EXPECT_NEAR(slopes[0], 3, 1e-2);
    EXPECT_NEAR(slopes[1], 0, 1e-9);
    EXPECT_NEAR(slopes[2], -2, 1e-2);
    // An error of .1 where the key moves by 10^-4 is no slope of 10^3.
    const double x[] = {0, 2.0001}, y[] = {-1.9}, time[] = {1e5};
    RegressionRows row{.keys = x, .values = y};
    if (o.has_times()) row.times = time;
    model.Learn(row);
    model.Coefficients(slopes);
    EXPECT_LT(std::abs(slopes[1]), .1);
  }
}

TEST(Regression, GoesOnFromWhatItSaved) {
  const Stream s(300, 5);
  for (const RegressionOptions& o : AllOptions()) {
    Regression model(o);
    for (std::int64_t t = 0; t < 200; t += 5) model.Learn(s.Rows(o, t, t + 5));
    Regression other(o, model.Save()), copy = model;
    for (Regression* const one : {&model, &other, &copy}) {
      for (std::int64_t t = 200; t < 300; ++t) one->Learn(s.Rows(o, t, t + 1));
    }
    std::vector<double> found((kKeys + 1) * kValues), again = found;
    model.Coefficients(found);
    for (Regression* const one : {&other, &copy}) {
      one->Coefficients(again);
      EXPECT_EQ(again, found);
      EXPECT_EQ(one->count(), 300);
    }
  }
}

// Times so large that a span is less than their rounding.
TEST(Regression, ALeastSpanHoldsTheLastRow) {
  const auto o = With([](auto& made) { made.span = 1e-12; });
  Stream s(20);
  Regression model(o);
  model.Learn(s.Rows(o, 0, 10));
  EXPECT_EQ(model.held(), 1);
  model.Learn(s.Rows(o, 10, 11));
  EXPECT_EQ(model.held(), s.times[10] == s.times[9] ? 2 : 1);
}

void ExpectError(const std::function<void()>& call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "nothing was wrong, where " << part << " was expected";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Regression, SaysWhatIsWrongAndWhere) {
  const auto timed = With([](auto& o) { o.span = 5; });
  Regression model(timed);
  Stream good(20), bad = good;
  model.Learn(good.Rows(timed, 0, 10));
  const auto expect = [&](const std::string& part) {
    ExpectError([&] { model.Learn(bad.Rows(timed, 10, 20)); }, part);
    bad = good;
    EXPECT_EQ(model.count(), 10);
  };
  bad.keys[12 * kKeys + 1] = kNan;
  expect("[learn] X must be finite but is nan in row 2, column 1");
  bad.values[11 * kValues] = -std::numeric_limits<double>::infinity();
  expect("y must be finite but is -inf in row 1, column 0");
  bad.weights[10] = -1;
  expect("weights must be 0 or more and finite but is -1 in row 0");
  bad.times[15] = bad.times[14] - 1;
  expect("or later, as time goes on, but is");
  bad.times[10] = bad.times[9] - 1;
  expect("in row 0");
  ExpectError([&] { model.Learn({.keys = good.keys, .values = good.values}); },
              "times must be 20 numbers");
  ExpectError([&] { model.Learn({.keys = good.keys}); }, "X must be 0 numbers but is 60");
  ExpectError([] { Regression(With([](auto& o) { o.decay = 0; })); }, "decay must be above 0");
  ExpectError([] { Regression(With([](auto& o) { o.half_life = kNan; })); },
              "half_life must be above 0");
  ExpectError([] { Regression(With([](auto& o) { o.ridge = -1; })); }, "ridge must be 0 or more");
  ExpectError([] { Regression(With([](auto& o) { o.window = -1; })); }, "window must be 0 or more");
  ExpectError([&] { Regression(timed, {}); }, "counts must be saved but is absent");
  auto saved = model.Save();
  saved["counts"].as<double>()[6] = 1e6;
  ExpectError([&] { Regression(timed, saved); }, "counts must be of rows that were saved but is");
  saved = model.Save();
  saved["r"] = Tensor(DType::kFloat64, {2, 2});
  ExpectError([&] { Regression(timed, saved); }, "r must be 16 numbers of float64 but is 4");
}

}  // namespace
}  // namespace ttr
