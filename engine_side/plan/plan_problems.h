// Why a manifest does not fit a model: what the load plan's checks found, and its wording. Refusals of other weights
// that do not fit share the wording.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// A refusal's line for the problems of one kind, of which a wrong model has hundreds: it counts them and shows the
// first five, "\n  7 missing: a, b, c, d, e and 2 more". Empty if there are none.
std::string ProblemLine(std::string_view kind, const std::vector<std::string>& problems,
                        std::string_view separator = ", ");

// Value. One text for each problem. Misfits come first, since other tensors may be missing because of them.
struct PlanProblems {
  struct Unexpected {
    std::string name;  // as the manifest has it
    std::string why;   // "There is no module or parameter named ..."
  };

  std::vector<std::string> misfits;   // "layer ...: 'a' expected [8, 4] bf16, got [8, 2] bf16"
  std::vector<std::string> missing;   // names of tensors that should be there
  std::vector<std::string> repeated;  // "'a' and 'b' both fill ..."
  std::vector<Unexpected> unexpected;

  bool empty() const { return misfits.empty() && missing.empty() && repeated.empty() && unexpected.empty(); }
  // Every problem, each introduced by its kind.
  std::vector<std::string> Lines() const;
  // For a refusal: the ProblemLine of each kind, in which unexpected tensors are named alone, and, if there is more to
  // see, a line that says how.
  std::string Summary() const;
};

}  // namespace layercast
