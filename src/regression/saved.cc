// What a regression holds, as tensors, and back.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "src/recipe/text.h"
#include "src/regression/row_regression.h"
#include "ttr/error.h"

namespace ttr::regression {
namespace {

Tensor TensorOf(const double* numbers, const Shape& shape) {
  return Tensor::Copy(TensorView::Of(numbers, shape));
}

void PutFit(const RotatedRows& rows, const std::string& prefix, Regression::Tensors& to) {
  const RowSizes& s = rows.sizes();
  const double sums[] = {rows.sum, rows.sum_of_squares};
  to[prefix + "r"] = TensorOf(rows.r(), {s.channels(), s.channels()});
  to[prefix + "w"] = TensorOf(rows.w(), {s.channels(), s.values});
  to[prefix + "rss"] = TensorOf(rows.rss(), {s.values});
  to[prefix + "origin"] = TensorOf(rows.origin().data(), {s.width()});
  to[prefix + "sums"] = TensorOf(sums, {2});
}

/// Takes what Save() gave.
class Saved {
 public:
  explicit Saved(const Regression::Tensors& tensors) : tensors_(tensors) {}

  std::span<const double> Get(const std::string& name, std::int64_t count) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw Error("Regression", name, "saved", "absent");
    const Tensor& tensor = found->second;
    if (tensor.dtype() != DType::kFloat64 || (count >= 0 && tensor.elements() != count)) {
      throw Error("Regression", name, std::to_string(count) + " numbers of float64",
                  std::to_string(tensor.elements()) + " of " + std::string(Name(tensor.dtype())));
    }
    return tensor.as<double>();
  }

  void Fill(const std::string& prefix, RotatedRows& to) const {
    const RowSizes& s = to.sizes();
    const auto copy = [&](const char* name, std::int64_t count, double* numbers) {
      const auto given = Get(prefix + name, count);
      std::copy(given.begin(), given.end(), numbers);
    };
    copy("r", s.channels() * s.channels(), to.r());
    copy("w", s.channels() * s.values, to.w());
    copy("rss", s.values, to.rss());
    const auto origin = Get(prefix + "origin", s.width());
    to.Begin({origin.begin(), origin.end()});
    double sums[2];
    copy("sums", 2, sums);
    to.sum = sums[0];
    to.sum_of_squares = sums[1];
  }

 private:
  const Regression::Tensors& tensors_;
};

Tensor RowsOf(const RowStore& rows) {
  return TensorOf(rows.numbers().data(), {rows.count(), rows.stride()});
}

}  // namespace

RowRegression::RowRegression(const RegressionOptions& options, const Regression::Tensors& tensors)
    : RowRegression(options) {
  const Saved saved(tensors);
  const auto counts = saved.Get("counts", 7);
  count_ = static_cast<std::int64_t>(counts[0]);
  last_time_ = counts[1];
  rotated_ = static_cast<std::int64_t>(counts[2]);
  placed_ = counts[3] != 0;
  saved.Fill("", newer_);
  if (!o_.has_window()) return;
  newer_log_ = counts[4];
  older_log_ = counts[5];
  const auto fill = [&](const char* name) {
    RowStore rows(sizes_.width());
    const auto numbers = saved.Get(name, -1);
    if (static_cast<std::int64_t>(numbers.size()) % rows.stride() != 0) {
      throw Error("Regression", name, "rows of " + std::to_string(rows.stride()),
                  std::to_string(numbers.size()));
    }
    rows.numbers().assign(numbers.begin(), numbers.end());
    return rows;
  };
  newer_rows_ = fill("newer");
  RowStore older = fill("older");
  if (!(counts[6] >= 0 && counts[6] <= static_cast<double>(older.count()))) {
    throw Error("Regression", "counts", "of rows that were saved", FormatNumber(counts[6]));
  }
  older_ = Suffixes(sizes_, std::move(older), static_cast<std::int64_t>(counts[6]));
}

Regression::Tensors RowRegression::Fit() {
  Regression::Tensors tensors;
  PutFit(Counted(), "", tensors);
  return tensors;
}

Regression::Tensors RowRegression::Save() const {
  Regression::Tensors tensors;
  const double counts[] = {static_cast<double>(count_),
                           last_time_,
                           static_cast<double>(rotated_),
                           placed_ ? 1.0 : 0.0,
                           newer_log_,
                           older_log_,
                           static_cast<double>(older_.first())};
  tensors["counts"] = TensorOf(counts, {7});
  PutFit(newer_, "", tensors);
  if (o_.has_window()) {
    tensors["newer"] = RowsOf(newer_rows_);
    tensors["older"] = RowsOf(older_.rows());
  }
  return tensors;
}

Regression::Tensors RowRegression::Rows() const {
  const std::int64_t n = o_.has_window() ? held() : 0, keys = sizes_.keys, values = sizes_.values;
  Regression::Tensors tensors;
  Tensor x(DType::kFloat64, {n, keys}), y(DType::kFloat64, {n, values});
  Tensor weights(DType::kFloat64, {n}), times(DType::kFloat64, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    const bool old = i < older_.count();
    const double* const row =
        old ? older_.rows().Row(older_.first() + i) : newer_rows_.Row(i - older_.count());
    std::copy_n(row, keys, x.as<double>().data() + i * keys);
    std::copy_n(row + keys, values, y.as<double>().data() + i * values);
    weights.as<double>()[i] = row[sizes_.width()];
    times.as<double>()[i] = row[sizes_.width() + 1];
  }
  tensors["keys"] = std::move(x);
  tensors["values"] = std::move(y);
  tensors["weights"] = std::move(weights);
  tensors["times"] = std::move(times);
  return tensors;
}

}  // namespace ttr::regression
