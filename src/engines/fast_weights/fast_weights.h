/// Fast weights: a linear memory written by rank-one steps.
///
///     M~_t = h_t M_{t-1}                               what the erasure sees
///     u_t  = b_t (v_t - M~_t r_t)      delta           u_t = b_t v_t      Hebbian
///     M_t  = a_t M_{t-1} + u_t w_t^T                   a_t: a number, or one a key channel
///     y_t  = scale M_t q_t                             (read before: scale M_{t-1} q_t;
///                                                       not causal: scale M_T q_t)
///
/// Every published layer of the family is a choice of the write key w, the erase key r, the decay a
/// and the step b; `Options` lists the choices. Chunks of tokens read the memory once, solve a
/// small triangular system for the innovations u, and write the memory once (Yang et al. 2024,
/// 2406.06484 and 2412.06464); strips of value columns of the memory stay in the first-level cache.
/// Sequences of a few tokens (decode) update the state in place. A token that erases reads all of
/// it before it writes any; with Call::deferred it does the write of the token before instead, in
/// the pass of its own reads. With Call::pending what the last tokens write stays beside the state
/// for a while, and can be taken back.
///
/// | argument     | shape                 | dtype            | meaning                         |
/// |--------------|-----------------------|------------------|---------------------------------|
/// | q            | [B, T, Hq, Dk]        | input            | queries; absent: write only     |
/// | k            | [B, T n, Hk, Dk]      | input            | keys                            |
/// | v            | [B, T n, Hv, Dv]      | input            | values; absent: read only       |
/// | log_decay    | [B, T, H] (, Dk)      | input            | <= 0; -inf forgets              |
/// | phase        | [B, T, H, Dk]         | input            | angle of a complex decay        |
/// | step         | [B, T n, H]           | input            | what the step rule reads        |
/// | importance   | [B, T, H]             | input            | weight in the curvature         |
/// | erase_key    | [B, T, H, Dk]         | input            | e, see Erase                    |
/// | erase_gate   | [B, T, H, Dk]         | input            | c, see Erase                    |
/// | momentum     | [B, T, H]             | input            | share of the last update        |
/// | weight_decay | [B, T, H]             | input            | see Shrink                      |
/// | bonus        | [H, Dk]               | input            | weight of the own token         |
/// | features_w   | [H, F, Dk]            | state's          | contiguous; of the feature map  |
/// | features_b   | [H, F]                | state's          | contiguous; of the feature map  |
/// | state        | [B or N, H, D, Dv]    | float32, float64 | M transposed, in place          |
/// | second       | [B or N, H, D, Dv]    | state's          | imaginary part, or momentum     |
/// | sum          | [B or N, H, D]        | float32, float64 | the denominator's vector        |
/// | maximum      | [B or N, H]           | float32, float64 | of the log-weights              |
/// | curvature    | [B or N, H, D]        | float32, float64 | diagonal curvature              |
/// | position     | [B or N, H]           | float32, float64 | tokens so far                   |
/// | deferred     | [B or N, H, numbers]  | state's          | the last write, see Flush       |
/// | pending      | [B or N, H, numbers]  | state's          | the last writes, see Flush      |
/// | y            | [B, T, max(H,Hq), Dv] | input            | absent where q is               |
///
/// "input" is float32, float64 or bfloat16, one by one.
///
/// n = steps a token; D = Dk, or the length of the features, and one more with an intercept. Any
/// strides but a contiguous last axis; gates ([B, T, H]) may have any stride in every axis. Hk and
/// Hv divide H; Hq divides H or is a multiple of it. All arithmetic is done in the state's dtype.
/// Data may hold NaN and infinities: they reach the tokens that depend on them and no others; a
/// log_decay of -inf forgets them exactly.
///
/// Cost a token and memory: 6 D Dv flops (Hebbian 4 D Dv) and O(C (D + Dv)) more, C = 8; 2 D Dv
/// more where values are written along a key of their own, twice as many for a complex decay or
/// momentum. The number of threads changes no bit. The caller validates shapes, dtypes, overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/output_norm.h"
#include "src/engines/fast_weights/operands.h"
#include "src/engines/rows/features.h"
#include "src/simd/processor.h"
#include "ttr/dtype.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::fast_weights {

enum class Write : std::uint8_t { kHebbian, kDelta };

/// Where b_t comes from; Hebbian memories take kOne, kInput and kLogWeight. With n = |k_t|^2 (after
/// normalise_qk) and s the input `step`:
enum class Step : std::uint8_t {
  kOne,        ///< 1
  kInput,      ///< s
  kNlms,       ///< eta / (n + eps); 0 for a zero key
  kLonghorn,   ///< s / (1 + s n)
  kEfla,       ///< (1 - exp(-s n)) / n, s where n = 0
  kLogWeight,  ///< exp(s), s of any size: memory and sum are stored divided by exp(maximum)
};

/// Along which keys a delta memory erases and writes; k is the key, e the `erase_key`, c the
/// `erase_gate`.
enum class Erase : std::uint8_t {
  kKey,               ///< r = k, w = k
  kEraseKey,          ///< r = e, w = k
  kGatedKey,          ///< r = c (.) k, w = k
  kSeparateValueKey,  ///< r = e, of the undecayed memory, along c (.) e; the value is written along
                      ///< k
};

/// What stands for the key of a Hebbian memory; a the decay per channel.
enum class Key : std::uint8_t {
  kInput,
  kComplement /* 1 - a */,
  kRootComplement /* sqrt(1-a^2) */
};

enum class Decay : std::uint8_t { kNone, kConstant, kScalar, kChannel };

/// M_t = s_t M~_t + ...: weight decay; the error is of the memory before it shrinks.
enum class Shrink : std::uint8_t {
  kNone,
  kCoupled,    ///< s = 1 - b weight_decay
  kDecoupled,  ///< s = 1 - weight_decay
};

/// By what the outputs of a Hebbian memory are divided. The sum n_t is the memory of the value 1.
enum class Denominator : std::uint8_t {
  kNone,
  kSum,         ///< n_t . q_t; where it is 0, y = 0 and the status is kSingular
  kStabilised,  ///< max(|n_t . q_t|, exp(-maximum)), both as they are stored
};

using common::OutputNorm;

/// Rows that a token may have for its write to be deferred.
inline constexpr int kMostDeferredSteps = 3;

struct Options {
  Write write = Write::kDelta;
  Step step = Step::kInput;
  double eta = 1;  ///< NLMS
  double eps = 0;  ///< NLMS
  Erase erase = Erase::kKey;
  Key key = Key::kInput;
  Decay decay = Decay::kNone;
  bool phase = false;     ///< `phase` rotates channels; Hebbian, kChannel
  bool momentum = false;  ///< G_t = momentum_t G_{t-1} + u w^T; M_t = a M_{t-1} + G_t; delta, kKey
  Shrink shrink = Shrink::kNone;
  /// W = k (.) m(D_t), see operands/key_rules-inl.h; delta, kKey.
  bool preconditioned = false;
  double curvature_decay = 1;
  double curvature_centre = 0;
  int steps = 1;                    ///< delta steps a token: rows of k, v and step
  rows::FeatureOptions features{};  ///< of q and k, after normalise_qk
  bool intercept = false;           ///< the number 1 after them; kKey, not kChannel
  bool read_before = false;
  bool causal = true;         ///< false: every query reads the final memory; Hebbian
  bool bonus = false;         ///< read before: y += scale (bonus (.) k).q v
  double correction = 0;      ///< q - correction erase_key is read
  bool normalise_qk = false;  ///< x / sqrt(|x|^2 + 1e-6) for q and k
  double scale = 1;           ///< multiplies q, after normalise_qk
  double gain = 1;            ///< multiplies y
  Denominator denominator = Denominator::kNone;
  OutputNorm output_norm = OutputNorm::kNone;  ///< of y over Dv; zero stays zero
  double output_norm_eps = 0;                  ///< added to the mean square or the squared norm

  /// Two memories side by side: real and imaginary part, or memory and momentum.
  bool paired() const { return phase || momentum; }
  /// Does the phase rotate channels between one read and the next?
  bool rotates() const { return phase && causal; }
  bool erases() const { return write == Write::kDelta; }
  /// Does the step size depend on |k|^2?
  bool step_reads_norm() const {
    return step != Step::kOne && step != Step::kInput && step != Step::kLogWeight;
  }
  /// Are outputs more than a read of the memory times a constant?
  bool transforms_outputs() const {
    return denominator != Denominator::kNone || output_norm != OutputNorm::kNone ||
           step == Step::kLogWeight;
  }
  /// Are values written along a key of their own (Erase::kSeparateValueKey)?
  bool separate_value_key() const { return erase == Erase::kSeparateValueKey; }
  /// Can the write of a token be deferred to the next one (Call::deferred)? Where nothing is erased
  /// that saves nothing: what is written does not wait for what is read.
  bool defers() const { return erases() && !paired() && steps <= kMostDeferredSteps; }
  /// Can what tokens write be pending (Call::pending)?
  bool can_pend() const { return causal && !paired(); }
  /// Is the decay a row of numbers a token? (A separate value key makes it one.)
  bool by_channel() const { return decay == Decay::kChannel || separate_value_key(); }
};

/// How many pairs are pending (a token has `steps` of them).
struct PendingRoom {
  std::int64_t window = 2;  ///< a call that finds so many writes them while it reads,
  std::int64_t kept = 0;    ///< all but so many of the last, which can still be taken back
  std::int64_t rows = 1;    ///< a call can add so many

  /// A call finds window - 1 + rows at most. Those that it writes keep their places until it ends:
  /// when pairs are written depends on earlier calls alone, not on what this one adds.
  std::int64_t pairs() const { return window - 1 + 2 * rows; }
};

struct Call : Operands<TensorView>, StateOperands<TensorView> {
  std::span<const double> decay_factors{};     ///< [H], in (0, 1], of kConstant
  std::span<const std::int64_t> cu_seqlens{};  ///< [N + 1], in tokens; empty: not packed
  std::span<const std::int64_t> slots{};       ///< [N] rows of the state; empty: 0 .. N - 1
  /// DeferredNumbers() of every memory, contiguous, zeros at first; only for a single token and
  /// where options.defers(). The state is then stale, until Flush().
  TensorView deferred{};
  /// In its place PendingNumbers() of every memory, contiguous, zeros at first; only where
  /// options.can_pend(). The state is then stale, until Flush(). Any number of tokens, all of which
  /// are decoded. `state` may then be bfloat16 or float16: it is rounded when pairs are added to
  /// it.
  TensorView pending{};
  PendingRoom room{};  ///< of `pending`, the same in all calls
  TensorView y{};
  TensorView status{};           ///< int8, as y without its last axis; written where not kSolved
  std::span<std::byte> saved{};  ///< SavedBytes() for Backward of the same call, or empty
  /// Products with a memory of float32 are those of bfloat16, where there are any
  /// (ProductsOfBf16()) and the sequence is longer than a few rows.
  bool bf16_products = false;
};

/// What scratch depends on.
struct Sizes {
  std::int64_t tokens = 0;     ///< of the longest sequence
  std::int64_t input_dim = 1;  ///< Dk, of q and k
  std::int64_t key_dim = 1;    ///< D, of the state
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;       ///< query heads that read one memory: max(1, Hq / H)
  DType state = DType::kFloat32;  ///< of the arithmetic
  bool rounded = false;           ///< does Call::state lie in bfloat16 or float16?
  bool saved = false;             ///< is anything saved for Backward, or was it?
  std::int64_t pairs = 0;         ///< room of Call::pending; 0: there is none
  simd::Bf16Products products = simd::Bf16Products::kFloat32;  ///< with the memory
};

/// Bytes of scratch that Forward needs with this many threads; grows with `tokens` up to one block
/// of 16 rows and not beyond: with half a megabyte a thread for memories that are interleaved.
std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads);

/// Writes and reads at every token; the state is left as after the last. `scratch` (any
/// alignment) holds ScratchBytes() at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// How products in bfloat16 with such memories are made on the chosen target (simd/processor.h).
simd::Bf16Products ProductsOfBf16(const Options& options);

/// Numbers of Call::deferred for every memory.
std::int64_t DeferredNumbers(const Sizes& sizes);

/// Numbers of Call::pending for every memory; of sizes it looks at key_dim, value_dim, state.
std::int64_t PendingNumbers(const Options& options, const Sizes& sizes, const PendingRoom& room);

/// Does what is deferred or pending, in call.state; nothing is then. Reads these and room alone.
void Flush(const Options& options, const Call& call, Executor& executor);

/// How many of the last rows of all sequences are pending: RollBack() can take back so many.
std::int64_t PendingRows(const Options& options, const Call& call);

/// Takes back the last `rows` rows of every sequence, at most PendingRows(): call.pending and the
/// entries of the state are as before them, but for the position, which is the caller's to count.
void RollBack(const Options& options, const Call& call, std::int64_t rows);

/// Bytes that Forward saves for Backward, of `sequences` sequences of `tokens` tokens each, or of
/// so many together where they are `packed`: a state each 64 rows, and Dv numbers a row where
/// something is erased. 0: it saves nothing of these options.
std::size_t SavedBytes(const Options& options, const Sizes& sizes, std::int64_t heads,
                       std::int64_t sequences, std::int64_t tokens, bool packed);

/// The SIMD target that the kernels themselves report they were compiled for, as chosen now.
const char* KernelTarget();

}  // namespace ttr::fast_weights
