/// The paper, place by place: what ttr has for it. Wang, Shi, Fox, "Test-time regression: a
/// unifying framework for designing sequence models with associative memory" (2025), arXiv
/// 2501.12352. docs/paper.md is this table, `ttr zoo --paper` prints it.
#pragma once

#include <span>
#include <string_view>

namespace ttr::experiments {

/// Equations are counted through the paper, every line of a display as one. What a field does not
/// say is empty.
struct PaperEntry {
  std::string_view place;  ///< "eq. 1", "figure 2", "claim", "named"
  std::string_view says;   ///< what stands there
  std::string_view recipe =
      {};                 ///< what computes it, with every option that its name has otherwise
  bool computed = false;  ///< a test computes it as the paper writes it: PaperEquations
  std::string_view identity = {};  ///< of `ttr experiment identities`: "left = right"
  std::string_view test = {};      ///< "Suite.Name"
  std::string_view command = {};   ///< prints the figures
  std::string_view document = {};  ///< "experiments.md#mqar": in docs
  std::string_view differs = {};   ///< what is otherwise, and why
};

struct PaperSection {
  std::string_view title;  ///< "Vignette 1: linear least squares"
  std::span<const PaperEntry> entries;
};

/// All sections, in the paper's order.
std::span<const PaperSection> Paper();

}  // namespace ttr::experiments
