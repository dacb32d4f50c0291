#include "tools/bench_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "tools/bench_least_squares.h"
#include "tools/bench_networks.h"
#include "tools/bench_pairs.h"

namespace ttr::tools {
namespace {

using report::Cell;
using report::Table;

// The works of a measurement by layer and d, in the order in which they were made; each by its
// variant.
struct Row {
  const Work* first = nullptr;
  std::map<std::string, const Work*> by_variant;

  const Work* Find(const std::string& variant) const {
    const auto found = by_variant.find(variant);
    return found == by_variant.end() ? nullptr : found->second;
  }
};

std::vector<Row> RowsOf(const std::vector<Work>& works, Measurement measurement) {
  std::vector<Row> rows;
  for (const Work& work : works) {
    if (work.setting().measurement != measurement) continue;
    const bool same = !rows.empty() && rows.back().first->name() == work.name() &&
                      rows.back().first->setting().dims.key_dim == work.setting().dims.key_dim;
    if (!same) rows.push_back({&work, {}});
    rows.back().by_variant[work.setting().variant] = &work;
  }
  return rows;
}

std::vector<Cell> Start(const Work& work) {
  return {work.name(), work.plan().engine, work.setting().dims.key_dim};
}

void Append(std::vector<Cell>& row, std::initializer_list<Cell> cells) {
  row.insert(row.end(), cells);
}

// The share of its limit that a work reaches, in percent.
double Share(const Work& work, const Limits& limits) {
  return 100 * limits.BoundOf(work).ns / work.Ns();
}

Table Begin(const char* title) {
  Table table(title);
  table.AddText("layer").AddText("engine").AddInteger("d");
  return table;
}

Table PrefillTable(const std::vector<Work>& works, const Limits& limits) {
  Table table = Begin("Prefill, float32");
  table.AddReal("time", 1, kNsUnit).AddReal("useful", 1, "GFLOP/s");
  table.AddReal("of limit", 1, "%").AddText("limit");
  for (const Row& of : RowsOf(works, Measurement::kPrefill)) {
    std::vector<Cell> row = Start(*of.first);
    Append(row, {of.first->Ns(), of.first->Gflops(), Share(*of.first, limits),
                 limits.BoundOf(*of.first).limit});
    table.AddRow(std::move(row));
  }
  return table;
}

Table DecodeTable(const std::vector<Work>& works, const Limits& limits) {
  Table table = Begin("Decode, float32: single tokens, states of 2 MB and of 64 MB in all");
  for (const char* where : {"cache", "DRAM"}) {
    const std::string in = std::string(", ") + where;
    table.AddReal("time" + in, 1, kNsUnit).AddReal("of in-place" + in, 1, "%");
    table.AddReal("of limit" + in, 1, "%");
  }
  for (const char* where : {"cache", "DRAM"}) {
    table.AddReal(std::string("state written, ") + where, 1, kNsUnit);
  }
  for (const char* where : {"cache", "DRAM"}) {
    table.AddReal(std::string("draft of 4, ") + where, 1, kNsUnit);
  }
  for (const char* where : {"cache", "DRAM"}) {
    table.AddReal(std::string("bfloat16 state, ") + where, 1, kNsUnit);
  }
  for (const char* where : {"cache", "DRAM"}) {
    table.AddReal(std::string("64 slots, of rows in order, ") + where, 1, "%");
  }
  for (const Row& of : RowsOf(works, Measurement::kDecode)) {
    std::vector<Cell> row = Start(*of.first);
    for (const char* where : {"cache", "DRAM"}) {
      const Work& work = *of.Find(where);
      Append(row, {work.Ns(), 100 * limits.MemoryBound(work).ns / work.Ns(), Share(work, limits)});
    }
    for (const char* what : {"written, ", "draft, ", "narrow, "}) {
      for (const char* where : {"cache", "DRAM"}) {
        const Work* work = of.Find(std::string(what) + where);
        Append(row, {work == nullptr ? Cell() : Cell(work->Ns())});
      }
    }
    for (const char* where : {"cache", "DRAM"}) {
      const Work* rows = of.Find(std::string("rows, ") + where);
      const Work* slots = of.Find(std::string("slots, ") + where);
      Append(row, {slots == nullptr ? Cell() : Cell(100 * rows->Ns() / slots->Ns())});
    }
    table.AddRow(std::move(row));
  }
  return table;
}

Table TrainTable(const std::vector<Work>& works, const Limits& limits) {
  Table table = Begin("Forward and backward, float32; empty where no engine has gradients");
  table.AddReal("forward", 1, kNsUnit).AddReal("forward + backward", 1, kNsUnit);
  table.AddReal("ratio", 2).AddReal("useful", 1, "GFLOP/s").AddReal("of limit", 1, "%");
  for (const Row& of : RowsOf(works, Measurement::kTrain)) {
    const Work& forward = *of.Find("forward");
    const Work* both = of.Find("both");
    std::vector<Cell> row = Start(forward);
    if (both == nullptr) {
      Append(row, {forward.Ns(), {}, {}, {}, {}});
    } else {
      Append(row, {forward.Ns(), both->Ns(), both->Ns() / forward.Ns(), both->Gflops(),
                   Share(*both, limits)});
    }
    table.AddRow(std::move(row));
  }
  return table;
}

Table ThreadsTable(const std::vector<Work>& works, const Limits& limits) {
  Table table = Begin("One memory, several threads, float32");
  table.AddInteger("threads").AddReal("one thread", 1, kNsUnit).AddReal("all threads", 1, kNsUnit);
  table.AddReal("speed-up", 2, "x").AddReal("of limit", 1, "%");
  for (const Row& of : RowsOf(works, Measurement::kThreads)) {
    const Work& one = *of.Find("one");
    const Work& several = *of.Find("several");
    std::vector<Cell> row = Start(one);
    Append(row, {several.setting().threads, one.Ns(), several.Ns(), one.Ns() / several.Ns(),
                 Share(several, limits)});
    table.AddRow(std::move(row));
  }
  return table;
}

// Differences of the outputs, as shares of the root mean square of an output: median, greatest.
std::pair<double, double> Errors(const Tensor& rounded, const Tensor& exact) {
  std::vector<double> differences;
  double squares = 0;
  for (std::int64_t i = 0; i < exact.elements(); ++i) {
    const double y = LoadElement(exact.data(), exact.dtype(), i);
    squares += y * y;
    differences.push_back(std::abs(LoadElement(rounded.data(), rounded.dtype(), i) - y));
  }
  const double size = std::sqrt(squares / static_cast<double>(differences.size()));
  const double greatest = *std::max_element(differences.begin(), differences.end());
  return {Median(std::move(differences)) / size, greatest / size};
}

Table Bf16Table(const std::vector<Work>& works, const Limits& limits) {
  Table table = Begin(
      "Prefill, bfloat16 q, k, v and y; float32 gates and states; products of float32, and of "
      "bfloat16 where the processor has them");
  table.AddReal("float32", 1, kNsUnit).AddReal("bfloat16", 1, kNsUnit).AddReal("ratio", 2);
  table.AddReal("of limit", 1, "%");
  table.AddReal("median error", 2, "of rms y", report::RealFormat::kScientific);
  table.AddReal("greatest error", 2, "of rms y", report::RealFormat::kScientific);
  table.AddReal("bfloat16 products", 1, kNsUnit).AddReal("products: ratio", 2);
  table.AddReal("products: median error", 2, "of rms y", report::RealFormat::kScientific);
  table.AddReal("products: greatest error", 2, "of rms y", report::RealFormat::kScientific);
  for (const Row& of : RowsOf(works, Measurement::kBf16)) {
    const Work& wide = *of.Find("float32");
    const Work& narrow = *of.Find("bfloat16");
    const auto [median, greatest] = Errors(narrow.Answers(false), narrow.Answers(true));
    std::vector<Cell> row = Start(wide);
    Append(row, {wide.Ns(), narrow.Ns(), narrow.Ns() / wide.Ns(), Share(narrow, limits), median,
                 greatest});
    if (const Work* products = of.Find("products"); products != nullptr) {
      const auto [usual, worst] = Errors(products->Answers(false), narrow.Answers(true));
      Append(row, {products->Ns(), products->Ns() / wide.Ns(), usual, worst});
    } else {
      Append(row, {{}, {}, {}, {}});
    }
    table.AddRow(std::move(row));
  }
  return table;
}

Table CurvesTable(const std::vector<Work>& works) {
  Table table("Cost along T, d, H and threads, float32");
  table.AddText("layer").AddText("axis").AddInteger("T").AddInteger("d").AddInteger("H");
  table.AddInteger("threads").AddReal("time", 1, kNsUnit);
  for (const Work& work : works) {
    const Setting& setting = work.setting();
    if (setting.measurement != Measurement::kCurves) continue;
    const Dims& dims = setting.dims;
    table.AddRow({work.name(), setting.variant, dims.tokens, dims.key_dim, dims.heads,
                  setting.threads, work.Ns()});
  }
  return table;
}

Table TableOf(Measurement measurement, const std::vector<Work>& works, const Limits& limits) {
  switch (measurement) {
    case Measurement::kLimits: return limits.ToTable();
    case Measurement::kPrefill: return PrefillTable(works, limits);
    case Measurement::kDecode: return DecodeTable(works, limits);
    case Measurement::kTrain: return TrainTable(works, limits);
    case Measurement::kThreads: return ThreadsTable(works, limits);
    case Measurement::kBf16: return Bf16Table(works, limits);
    case Measurement::kLeastSquares: return LeastSquaresTable(works, limits);
    case Measurement::kPairs: return PairsTable(works, limits);
    case Measurement::kNetworks: return NetworksTable(works, limits);
    case Measurement::kOperators: break;
    case Measurement::kCurves: return CurvesTable(works);
  }
  return Table();
}

}  // namespace

std::vector<NamedTable> BenchTables(const std::vector<Work>& works,
                                    const std::vector<OperatorWork>& operators,
                                    const Limits& limits) {
  std::vector<NamedTable> tables;
  for (std::size_t i = 0; i < std::size(kMeasurementNames); ++i) {
    const auto measurement = static_cast<Measurement>(i);
    if (measurement == Measurement::kOperators && !operators.empty()) {
      tables.push_back({std::string(Name(measurement)), OperatorsTable(operators, limits)});
    }
    const bool run = measurement == Measurement::kLimits ||
                     std::any_of(works.begin(), works.end(), [&](const Work& work) {
                       return work.setting().measurement == measurement;
                     });
    if (!run) continue;
    tables.push_back({std::string(Name(measurement)), TableOf(measurement, works, limits)});
    if (measurement == Measurement::kPairs)
      tables.push_back({"pairs_decode", PairsDecodeTable(works, limits)});
    if (measurement == Measurement::kLeastSquares) {
      tables.push_back({"least_squares_decode", LeastSquaresDecodeTable(works, limits)});
    }
  }
  return tables;
}

}  // namespace ttr::tools
