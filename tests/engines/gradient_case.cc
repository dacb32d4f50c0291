#include "tests/engines/gradient_case.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>

#include "hwy/aligned_allocator.h"
#include "src/engines/fast_weights/kernel.h"

namespace ttr::fast_weights {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double At(const GradientArrays& arrays, const char* name, std::size_t index, double missing) {
  const auto it = arrays.find(name);
  return it == arrays.end() ? missing : it->second[index];
}

const double* Row(const GradientArrays& arrays, const char* name, std::int64_t row,
                  std::int64_t width) {
  const auto it = arrays.find(name);
  return it == arrays.end() ? nullptr : it->second.data() + row * width;
}

double DecayOf(const GradientShape& shape, const GradientArrays& in, std::int64_t t,
               std::int64_t k) {
  if (shape.sizes.decay == GradientDecay::kNone) return 1;
  if (shape.sizes.decay == GradientDecay::kScalar) return in.at("decay")[t];
  return std::exp(in.at("log_decay")[t * shape.sizes.key_dim + k]);
}

double SeenDecayOf(const GradientShape& shape, const GradientArrays& in, std::int64_t t,
                   std::int64_t k) {
  if (shape.seen == Seen::kUndecayed) return 1;
  return shape.seen == Seen::kOwn ? in.at("erase_decay")[t] : DecayOf(shape, in, t, k);
}

/// What is forgotten need not be a number.
double Decayed(double decay, double x) { return decay == 0 ? 0 : decay * x; }

/// Everything that the recurrence goes through.
struct Trace {
  std::vector<std::vector<double>> memories;  // T + 1
  std::vector<double> errors;                 // [T, Dv]
  GradientArrays outputs;
};

Trace Run(const GradientShape& shape, const GradientArrays& in) {
  const GradientSizes& s = shape.sizes;
  const std::int64_t dk = s.key_dim;
  const std::int64_t dv = s.value_dim;
  Trace trace;
  std::vector<double> m(dk * dv, 0.0);
  if (in.count("initial") > 0) m = in.at("initial");
  trace.memories.push_back(m);
  trace.errors.assign(shape.tokens * dv, 0.0);
  std::vector<double>& y = trace.outputs["output"];
  y.assign(s.queries * shape.tokens * dv, 0.0);
  const char* spoken = s.second_write ? "second_value" : "value";
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const std::vector<double> past = m;
    const double* r = Row(in, "erase", t, dk);
    const double* w = Row(in, "write", t, dk);
    const double* w2 = Row(in, "second_write", t, dk);
    const double* v2 = Row(in, "second_value", t, dv);
    const double b = At(in, "step", t, 1);
    for (std::int64_t v = 0; v < dv; ++v) {
      double e = At(in, "value", t * dv + v, 0);
      for (std::int64_t k = 0; s.erase && k < dk; ++k) {
        e -= r[k] * Decayed(SeenDecayOf(shape, in, t, k), past[k * dv + v]);
      }
      trace.errors[t * dv + v] = e;
      for (std::int64_t k = 0; k < dk; ++k) {
        m[k * dv + v] = Decayed(DecayOf(shape, in, t, k), past[k * dv + v]) + w[k] * b * e;
        if (s.second_write) m[k * dv + v] += w2[k] * v2[v];
      }
    }
    const std::vector<double>& read = shape.read_before ? past : m;
    for (std::int64_t p = 0; p < s.queries; ++p) {
      const double* q = Row(in, "query", p * shape.tokens + t, dk);
      for (std::int64_t v = 0; v < dv; ++v) {
        double sum = At(in, "bonus", p * shape.tokens + t, 0) * At(in, spoken, t * dv + v, 0);
        for (std::int64_t k = 0; k < dk; ++k) sum += q[k] * read[k * dv + v];
        y[(p * shape.tokens + t) * dv + v] = sum;
      }
    }
    trace.memories.push_back(m);
  }
  trace.outputs["final"] = m;
  return trace;
}

std::int64_t Padded(std::int64_t x) { return (x + 15) / 16 * 16; }

/// Rows of T, padded as the engine wants them, a line apart from one another.
template <class T>
struct Buffer {
  hwy::AlignedFreeUniquePtr<T[]> data;
  std::int64_t rows = 0, width = 0, stride = 0;

  Buffer(std::int64_t row_count, std::int64_t columns, T fill)
      : rows(row_count), width(columns), stride(Padded(columns) + 16) {
    const std::size_t count = static_cast<std::size_t>(std::max<std::int64_t>(rows * stride, 1));
    data = hwy::AllocateAligned<T>(count);
    std::fill(data.get(), data.get() + count, fill);
  }
  static Buffer Of(const std::vector<double>& x, std::int64_t width) {
    Buffer buffer(static_cast<std::int64_t>(x.size()) / width, width, T(0));
    for (std::int64_t r = 0; r < buffer.rows; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        buffer.data[r * buffer.stride + i] = static_cast<T>(x[r * width + i]);
      }
    }
    return buffer;
  }
  std::vector<double> Values() const {
    std::vector<double> x(rows * width);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < width; ++i) x[r * width + i] = data[r * stride + i];
    }
    return x;
  }
};

}  // namespace

std::string GradientShape::Name() const {
  std::string name = "T=" + std::to_string(tokens) + " Dk=" + std::to_string(sizes.key_dim) +
                     " Dv=" + std::to_string(sizes.value_dim) +
                     " p=" + std::to_string(sizes.queries);
  const char* decays[] = {"none", "scalar", "channel"};
  const char* seens[] = {"decayed", "undecayed", "own"};
  const char* gate_names[] = {"mild", "mixed", "strong", "negative"};
  name += std::string(" decay=") + decays[static_cast<int>(sizes.decay)] + "/" +
          gate_names[static_cast<int>(gates)] + " seen=" + seens[static_cast<int>(seen)];
  if (sizes.erase) name += " erase";
  if (sizes.second_write) name += " second";
  if (read_before) name += " before";
  if (reset) name += " reset";
  if (!value) name += " no-value";
  if (!step) name += " no-step";
  if (bonus) name += " bonus";
  if (!states) name += " no-states";
  return name;
}

GradientArrays RandomInputs(const GradientShape& shape, std::uint64_t seed) {
  const GradientSizes& s = shape.sizes;
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal;
  // Exact in float, so that both types see the same numbers.
  const auto exact = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  const auto rows = [&](std::int64_t count, std::int64_t width, bool unit) {
    std::vector<double> x(count * width);
    for (double& value : x) value = exact(normal(generator));
    for (std::int64_t r = 0; unit && r < count; ++r) {
      double norm = 0;
      for (std::int64_t i = 0; i < width; ++i) norm += x[r * width + i] * x[r * width + i];
      for (std::int64_t i = 0; i < width; ++i)
        x[r * width + i] = exact(x[r * width + i] / std::sqrt(norm));
    }
    return x;
  };
  const auto gate = [&](std::int64_t i) {
    const double u = uniform(generator);
    switch (shape.gates) {
      case Gates::kMild: return -0.2 * u;
      case Gates::kStrong: return -70.0;
      default: {
        const double values[] = {-kInfinity, -70.0, -7.0, -0.7, -1e-3, 0.0, 0.0, -0.1 * u};
        return values[(static_cast<std::uint64_t>(i) * 5 + generator()) % 8];
      }
    }
  };
  GradientArrays in;
  in["write"] = rows(shape.tokens, s.key_dim, true);
  // The erasure along the write: the delta rule contracts.
  if (s.erase) in["erase"] = in["write"];
  if (s.erase && shape.seen == Seen::kUndecayed) {
    for (double& x : in["erase"]) x = exact(x * (0.5 + 0.5 * uniform(generator)));
  }
  if (s.second_write) in["second_write"] = rows(shape.tokens, s.key_dim, true);
  if (s.queries > 0) in["query"] = rows(s.queries * shape.tokens, s.key_dim, true);
  if (shape.value) in["value"] = rows(shape.tokens, s.value_dim, false);
  if (s.second_write) in["second_value"] = rows(shape.tokens, s.value_dim, false);
  if (shape.step) {
    in["step"].resize(shape.tokens);
    for (double& x : in["step"]) x = exact(uniform(generator));
  }
  if (s.decay == GradientDecay::kScalar) {
    for (const char* name : {"decay", "erase_decay"}) {
      if (std::string(name) == "erase_decay" && shape.seen != Seen::kOwn) continue;
      std::vector<double>& x = in[name];
      for (std::int64_t t = 0; t < shape.tokens; ++t) {
        const double sign = shape.gates == Gates::kNegative && uniform(generator) < 0.4 ? -1 : 1;
        x.push_back(exact(sign * std::exp(gate(t))));
      }
    }
  }
  if (s.decay == GradientDecay::kChannel) {
    std::vector<double>& x = in["log_decay"];
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      // Now and then a token forgets everything.
      const bool all = shape.gates == Gates::kMixed && generator() % 11 == 0;
      for (std::int64_t k = 0; k < s.key_dim; ++k) x.push_back(all ? -kInfinity : exact(gate(k)));
    }
  }
  if (shape.bonus) in["bonus"] = rows(s.queries, shape.tokens, false);
  if (shape.states) in["initial"] = rows(s.key_dim, s.value_dim, false);
  return in;
}

GradientArrays Recurrence(const GradientShape& shape, const GradientArrays& inputs) {
  return Run(shape, inputs).outputs;
}

GradientArrays ReverseMode(const GradientShape& shape, const GradientArrays& in,
                           const GradientArrays& d, GradientArrays* magnitudes) {
  const GradientSizes& s = shape.sizes;
  const std::int64_t dk = s.key_dim;
  const std::int64_t dv = s.value_dim;
  const Trace trace = Run(shape, in);
  GradientArrays out;
  for (const auto& [name, values] : in) {
    out[name].assign(values.size(), 0.0);
    (*magnitudes)[name] = out[name];
  }
  const auto add = [&](const char* name, std::int64_t i, double x, double magnitude) {
    out[name][i] += x;
    (*magnitudes)[name][i] += std::abs(magnitude);
  };
  std::vector<double> dm(dk * dv, 0.0);
  if (d.count("final") > 0) dm = d.at("final");
  // What chunks of 16 tokens sum to the gradient of the memory before them.
  std::vector<double> dm_size;
  const char* spoken = s.second_write ? "second_value" : "value";
  for (std::int64_t t = shape.tokens - 1; t >= 0; --t) {
    if (t == shape.tokens - 1 || t % 16 == 15) {
      dm_size = dm;
      for (double& x : dm_size) x = std::abs(x);
    }
    const std::vector<double>& past = trace.memories[t];
    const std::vector<double>& read = shape.read_before ? past : trace.memories[t + 1];
    std::vector<double> early(dk * dv, 0.0);
    for (std::int64_t p = 0; p < s.queries; ++p) {
      const double* q = Row(in, "query", p * shape.tokens + t, dk);
      const double* dy = Row(d, "output", p * shape.tokens + t, dv);
      for (std::int64_t v = 0; v < dv; ++v) {
        for (std::int64_t k = 0; k < dk; ++k) {
          (shape.read_before ? early : dm)[k * dv + v] += q[k] * dy[v];
          if (!shape.read_before) dm_size[k * dv + v] += std::abs(q[k] * dy[v]);
          const double dq = dy[v] * read[k * dv + v];
          add("query", (p * shape.tokens + t) * dk + k, dq, dq);
        }
        if (!shape.bonus) continue;
        const double from_bonus = dy[v] * in.at(spoken)[t * dv + v];
        add("bonus", p * shape.tokens + t, from_bonus, from_bonus);
        const double to_value = dy[v] * in.at("bonus")[p * shape.tokens + t];
        add(spoken, t * dv + v, to_value, to_value);
      }
    }
    const double b = At(in, "step", t, 1);
    const double* w = Row(in, "write", t, dk);
    for (std::int64_t v = 0; v < dv; ++v) {
      double du = 0;
      double du_size = 0;
      const double e = trace.errors[t * dv + v];
      double e_size = std::abs(At(in, "value", t * dv + v, 0));
      for (std::int64_t k = 0; s.erase && k < dk; ++k) {
        e_size += std::abs(in.at("erase")[t * dk + k] * past[k * dv + v]);
      }
      for (std::int64_t k = 0; k < dk; ++k) {
        const double g = dm[k * dv + v];
        du += w[k] * g;
        du_size += std::abs(w[k] * g);
        add("write", t * dk + k, g * b * e, g * b * e_size);
        if (s.second_write) {
          const double dw = g * in.at("second_value")[t * dv + v];
          add("second_write", t * dk + k, dw, dw);
          const double dx = g * in.at("second_write")[t * dk + k];
          add("second_value", t * dv + v, dx, dx);
        }
      }
      if (shape.step) add("step", t, du * e, du_size * e_size);
      if (shape.value) add("value", t * dv + v, b * du, b * du_size);
      for (std::int64_t k = 0; k < dk; ++k) {
        const double a = DecayOf(shape, in, t, k);
        double da = dm[k * dv + v] * past[k * dv + v];
        double da_size = std::abs(da);
        dm[k * dv + v] = a * dm[k * dv + v] + early[k * dv + v];
        dm_size[k * dv + v] = std::abs(a) * dm_size[k * dv + v] + std::abs(early[k * dv + v]);
        if (s.erase) {
          const double h = SeenDecayOf(shape, in, t, k);
          const double r = in.at("erase")[t * dk + k];
          const double found = b * h * past[k * dv + v];
          add("erase", t * dk + k, -found * du, found * du_size);
          const double dh = -b * r * past[k * dv + v] * du;
          const double dh_size = std::abs(b * r * past[k * dv + v]) * du_size;
          dm[k * dv + v] -= b * du * h * r;
          dm_size[k * dv + v] += std::abs(b * du_size * h * r);
          if (shape.seen == Seen::kDecayed) {
            da += dh;
            da_size += dh_size;
          }
          if (shape.seen == Seen::kOwn) add("erase_decay", t, dh, dh_size);
        }
        if (s.decay == GradientDecay::kScalar && !(shape.reset && a == 0)) {
          add("decay", t, da, da_size);
        }
        if (s.decay == GradientDecay::kChannel) add("log_decay", t * dk + k, a * da, a * da_size);
      }
    }
  }
  if (shape.states) {
    out["initial"] = dm;
    (*magnitudes)["initial"] = shape.tokens > 0 ? dm_size : dm;
  }
  return out;
}

namespace {

std::vector<double> Exp(std::vector<double> x) {
  for (double& value : x) value = std::exp(value);
  return x;
}

/// What the engine's forward pass would have saved (saved.h).
template <class T>
struct SavedCopies {
  hwy::AlignedFreeUniquePtr<T[]> memories;  // before every block, and behind the last token
  Buffer<T> errors;
  std::int64_t state;

  SavedCopies(const GradientShape& shape, const GradientArrays& in)
      : errors(shape.tokens, shape.sizes.value_dim, T(0)),
        state(Padded(shape.sizes.key_dim) * Padded(shape.sizes.value_dim)) {
    const Trace trace = Run(shape, in);
    const std::int64_t dv = shape.sizes.value_dim;
    const std::int64_t blocks = (shape.tokens + kGradientBlock - 1) / kGradientBlock;
    memories = hwy::AllocateAligned<T>(static_cast<std::size_t>((blocks + 1) * state));
    for (std::int64_t b = 0; b <= blocks; ++b) {
      Transpose(shape.sizes, trace.memories[std::min(b * kGradientBlock, shape.tokens)],
                memories.get() + b * state);
    }
    errors.stride = Padded(dv);
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      for (std::int64_t v = 0; v < dv; ++v) {
        errors.data[t * errors.stride + v] = static_cast<T>(trace.errors[t * dv + v]);
      }
    }
  }

  /// A memory [Dk, Dv], transposed in strips of key channels.
  static void Transpose(const GradientSizes& s, const std::vector<double>& memory, T* to) {
    const std::int64_t keys = Padded(s.key_dim), values = Padded(s.value_dim);
    const std::int64_t lanes = StripColumns(DTypeOf<T>()) / 2;
    for (std::int64_t k = 0, width; k < keys; k += width) {
      width = keys - k > lanes ? 2 * lanes : lanes;
      for (std::int64_t v = 0; v < values; ++v) {
        for (std::int64_t i = k; i < k + width; ++i) {
          const bool there = i < s.key_dim && v < s.value_dim;
          *to++ = there ? static_cast<T>(memory[i * s.value_dim + v]) : T(0);
        }
      }
    }
  }
};

template <class T>
void Advance(BlockRows<T>& rows, std::int64_t tokens) {
  for (auto* one : {&rows.erase, &rows.write, &rows.second_write, &rows.query, &rows.gates,
                    &rows.value, &rows.second_value, &rows.bonus}) {
    if (*one) one->data += tokens * one->stride;
  }
  for (T** numbers : {&rows.step, &rows.decay, &rows.erase_decay}) {
    if (*numbers != nullptr) *numbers += tokens;
  }
}

template <class T>
void RunBlocks(const GradientCall<T>& all, const SavedCopies<T>& saved, std::int64_t tokens,
               std::byte* scratch) {
  const std::int64_t blocks = (tokens + kGradientBlock - 1) / kGradientBlock;
  RunGradient(GradientStage::kBegin, all, scratch);
  for (std::int64_t b = blocks - 1; b >= 0; --b) {
    GradientCall<T> call = all;
    call.first = b * kGradientBlock;
    call.tokens = std::min<std::int64_t>(kGradientBlock, tokens - call.first);
    call.saved.memory = saved.memories.get() + b * saved.state;
    Advance(call.in, call.first);
    Advance(call.d, call.first);
    if (call.d_output) call.d_output.data += call.first * call.d_output.stride;
    RunGradient(GradientStage::kBlock, call, scratch);
  }
  if (all.ends.initial != nullptr) RunGradient(GradientStage::kEnd, all, scratch);
}

/// The rows of a call from the arrays by name, and its numbers.
template <class T, class RowsByName, class NumbersByName>
BlockRows<T> RowsOf(const RowsByName& rows, const NumbersByName& numbers) {
  BlockRows<T> all;
  all.erase = rows("erase");
  all.write = rows("write");
  all.second_write = rows("second_write");
  all.query = rows("query");
  all.gates = rows("log_decay");
  all.value = rows("value");
  all.second_value = rows("second_value");
  all.bonus = rows("bonus");
  all.step = numbers("step");
  all.decay = numbers("decay");
  all.erase_decay = numbers("erase_decay");
  return all;
}

}  // namespace

template <class T>
GradientArrays EngineGradients(const GradientShape& shape, const GradientArrays& in,
                               const GradientArrays& d) {
  const GradientSizes& s = shape.sizes;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  std::map<std::string, Buffer<T>> given, found;
  const auto width = [&](const std::string& name) {
    if (name.find("value") != std::string::npos || name == "output") return s.value_dim;
    if (name == "initial" || name == "final") return s.value_dim;
    if (name == "step" || name == "decay" || name == "erase_decay") return std::int64_t{1};
    return name == "bonus" ? std::int64_t{1} : s.key_dim;
  };
  for (const GradientArrays* arrays : {&in, &d}) {
    for (const auto& [name, values] : *arrays) {
      given.emplace(name, Buffer<T>::Of(name == "log_decay" ? Exp(values) : values, width(name)));
      found.emplace(name, Buffer<T>(given.at(name).rows, width(name), nan));
    }
  }
  const auto rows = [&](const char* name) -> GradientRows<const T> {
    const auto it = given.find(name);
    if (it == given.end()) return {};
    return {it->second.data.get(), it->second.stride, it->second.stride * shape.tokens};
  };
  const auto d_rows = [&](const char* name) -> GradientRows<T> {
    const auto it = found.find(name);
    if (it == found.end()) return {};
    return {it->second.data.get(), it->second.stride, it->second.stride * shape.tokens};
  };
  // Numbers a token lie one behind the other.
  std::map<std::string, std::vector<T>> numbers, d_numbers;
  for (const char* name : {"step", "decay", "erase_decay"}) {
    if (in.count(name) == 0) continue;
    numbers[name].assign(in.at(name).begin(), in.at(name).end());
    d_numbers[name].assign(in.at(name).size(), nan);
  }
  const auto numbers_of = [](auto& all) {
    return [&all](const char* name) {
      const auto it = all.find(name);
      return it == all.end() ? nullptr : it->second.data();
    };
  };
  const SavedCopies<T> saved(shape, in);
  GradientCall<T> call;
  call.sizes = s;
  call.seen = shape.seen;
  call.read_before = shape.read_before;
  call.reset = shape.reset;
  call.in = RowsOf<const T>(rows, numbers_of(numbers));
  call.d = RowsOf<T>(d_rows, numbers_of(d_numbers));
  call.d_output = rows("output");
  call.saved.errors = saved.errors.data.get();
  if (shape.states) {
    call.ends = {given.at("final").data.get(), found.at("initial").data.get(),
                 given.at("final").stride};
  }

  const std::size_t bytes = GradientScratchBytes<T>(s);
  const auto scratch = hwy::AllocateAligned<T>(bytes / sizeof(T));
  std::fill(scratch.get(), scratch.get() + bytes / sizeof(T), nan);
  RunBlocks(call, saved, shape.tokens, reinterpret_cast<std::byte*>(scratch.get()));

  GradientArrays out;
  for (const auto& [name, values] : in) {
    if (const auto it = d_numbers.find(name); it != d_numbers.end()) {
      out[name].assign(it->second.begin(), it->second.end());
    } else {
      out[name] = found.at(name).Values();
    }
  }
  return out;
}

template GradientArrays EngineGradients<float>(const GradientShape&, const GradientArrays&,
                                               const GradientArrays&);
template GradientArrays EngineGradients<double>(const GradientShape&, const GradientArrays&,
                                                const GradientArrays&);

}  // namespace ttr::fast_weights
