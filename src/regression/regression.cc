// The public face of RowRegression.
#include "ttr/regression.h"

#include <utility>

#include "src/regression/row_regression.h"

namespace ttr {

using regression::RowRegression;

Regression::Regression(const RegressionOptions& options)
    : own_(std::make_unique<RowRegression>(options)) {}
Regression::Regression(const RegressionOptions& options, const Tensors& saved)
    : own_(std::make_unique<RowRegression>(options, saved)) {}
Regression::Regression(const Regression& other)
    : own_(std::make_unique<RowRegression>(*other.own_)) {}
Regression& Regression::operator=(const Regression& other) { return *this = Regression(other); }
Regression::Regression(Regression&&) noexcept = default;
Regression& Regression::operator=(Regression&&) noexcept = default;
Regression::~Regression() = default;

const RegressionOptions& Regression::options() const { return own_->options(); }
void Regression::Learn(const RegressionRows& rows) { own_->Learn(rows); }
void Regression::Predict(std::span<const double> queries, std::span<double> values) {
  own_->Predict(queries, values);
}
void Regression::Coefficients(std::span<double> numbers) { own_->Coefficients(numbers); }
std::int64_t Regression::count() const { return own_->count(); }
std::int64_t Regression::held() const { return own_->held(); }
Regression::Tensors Regression::Fit() { return own_->Fit(); }
Regression::Tensors Regression::Save() const { return own_->Save(); }
Regression::Tensors Regression::Rows() const { return own_->Rows(); }

}  // namespace ttr
