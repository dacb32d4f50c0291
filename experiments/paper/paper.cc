// Legend: M = M_t in R^{Dv x Dk}, M' = M_{t-1}, k, v, q column vectors of token t, K and V their
// rows up to t, G = diag of the weights, b a step size, phi a feature map, s a similarity.
#include "experiments/paper/paper.h"

#include "experiments/paper/sections.h"

namespace ttr::experiments {

std::span<const PaperSection> Paper() {
  static const PaperSection kPaper[] = {
      {"1 Introduction", PaperIntroduction()},
      {"2 Existing layers", PaperExistingLayers()},
      {"3 Memorizing is regression, recalling is its function", PaperFramework()},
      {"4, vignette 1: linear least squares", PaperLeastSquares()},
      {"4, vignette 2: weighted least squares", PaperWeighted()},
      {"4, vignette 3: first-order methods", PaperFirstOrder()},
      {"4, vignette 4: nonparametric regression", PaperNonparametric()},
      {"5 Online regression", PaperOnlineRegression()},
      {"6 Keys and values for recall", PaperKeys()},
      {"7 and 8 Related work, outlook", PaperRelated()},
      {"Appendix A: a bound", PaperAppendix()},
  };
  return kPaper;
}

}  // namespace ttr::experiments
