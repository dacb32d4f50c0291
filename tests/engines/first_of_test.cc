// Where a number of some kind stands, of every dtype, on every target.
#include "src/simd/first_of.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/dtype.h"

namespace ttr::simd {
namespace {

template <class T>
T From(double x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return ToBFloat16(x);
  } else {
    return static_cast<T>(x);
  }
}

template <class T>
class FirstOfTest : public testing::Test {
 protected:
  // Among numbers that are of neither sign, x alone is looked for at every place.
  void Expect(T x, bool positive, bool negative) {
    constexpr std::int64_t kCount = 300;
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    std::vector<T> numbers;
    for (std::int64_t i = 0; i < kCount; ++i) {
      numbers.push_back(From<T>(i % 3 == 0 ? kNan : i % 3 == 1 ? 0.0 : -0.0));
    }
    for (std::int64_t place = 0; place < kCount; ++place) {
      const T before = numbers[static_cast<std::size_t>(place)];
      numbers[static_cast<std::size_t>(place)] = x;
      const std::int64_t found_positive = FirstOf(Kind::kPositive, numbers.data(), kCount);
      const std::int64_t found_negative = FirstOf(Kind::kNegative, numbers.data(), kCount);
      ASSERT_EQ(found_positive, positive ? place : kCount) << place;
      ASSERT_EQ(found_negative, negative ? place : kCount) << place;
      ASSERT_EQ(FirstOf(Kind::kPositive, numbers.data(), place), place);  // it lies behind
      numbers[static_cast<std::size_t>(place)] = before;
    }
  }
};

using Numbers = testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(FirstOfTest, Numbers);

TYPED_TEST(FirstOfTest, FindsEveryNumberOfASignAndNothingElse) {
  using Limits = std::numeric_limits<float>;  // those of bfloat16 reach as far
  for (const std::string& target : test::Targets()) {
    SCOPED_TRACE(target);
    const test::OnTarget forced(target);
    for (const double x : {1.0, 0x1p-133, double{Limits::min()}, double{Limits::infinity()}}) {
      SCOPED_TRACE(x);
      this->Expect(From<TypeParam>(x), true, false);
      this->Expect(From<TypeParam>(-x), false, true);
    }
    for (const double x : {0.0, double{Limits::quiet_NaN()}}) {
      this->Expect(From<TypeParam>(x), false, false);
      this->Expect(From<TypeParam>(-x), false, false);
    }
  }
}

TYPED_TEST(FirstOfTest, FindsEveryNumberThatIsNotFinite) {
  using Limits = std::numeric_limits<float>;
  constexpr std::int64_t kCount = 300;
  for (const std::string& target : test::Targets()) {
    SCOPED_TRACE(target);
    const test::OnTarget forced(target);
    std::vector<TypeParam> numbers;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double finite[] = {1, -0.0, 0x1.fep127, -0x1p-133, -0x1.fep127};
      numbers.push_back(From<TypeParam>(finite[i % 5]));
    }
    for (const double x : {double{Limits::infinity()}, double{Limits::quiet_NaN()}}) {
      for (std::int64_t place = 0; place < kCount; ++place) {
        const auto at = static_cast<std::size_t>(place);
        const TypeParam before = numbers[at];
        numbers[at] = From<TypeParam>(place % 2 == 0 ? x : -x);
        ASSERT_EQ(FirstOf(Kind::kNonfinite, numbers.data(), kCount), place) << x;
        ASSERT_EQ(FirstOf(Kind::kNonfinite, numbers.data(), place), place) << x;
        numbers[at] = before;
      }
    }
  }
}

TYPED_TEST(FirstOfTest, FindsZerosAndMinusInfinity) {
  constexpr std::int64_t kCount = 300;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const std::string& target : test::Targets()) {
    SCOPED_TRACE(target);
    const test::OnTarget forced(target);
    std::vector<TypeParam> numbers;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double others[] = {1, kInfinity, -1, std::numeric_limits<double>::quiet_NaN(),
                               0x1p-133};
      numbers.push_back(From<TypeParam>(others[i % 5]));
    }
    EXPECT_EQ(FirstOf(Kind::kZero, numbers.data(), kCount), kCount);
    EXPECT_EQ(FirstOf(Kind::kMinusInfinity, numbers.data(), kCount), kCount);
    for (std::int64_t place = 0; place < kCount; ++place) {
      const auto at = static_cast<std::size_t>(place);
      const TypeParam before = numbers[at];
      numbers[at] = From<TypeParam>(place % 2 == 0 ? 0.0 : -0.0);
      ASSERT_EQ(FirstOf(Kind::kZero, numbers.data(), kCount), place);
      numbers[at] = From<TypeParam>(-kInfinity);
      ASSERT_EQ(FirstOf(Kind::kMinusInfinity, numbers.data(), kCount), place);
      numbers[at] = before;
    }
  }
}

TYPED_TEST(FirstOfTest, NothingAmongNone) {
  EXPECT_EQ(FirstOf(Kind::kPositive, static_cast<const TypeParam*>(nullptr), 0), 0);
}

}  // namespace
}  // namespace ttr::simd
