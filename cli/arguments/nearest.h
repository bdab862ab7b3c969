// What somebody may have meant by a word that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace layercast::cli {

// ": did you mean 'reload'?", of the known word that is nearest to `word`; empty if none is near: within one edit (a
// letter more, less or another one, or two that changed places) for every three letters.
std::string DidYouMean(std::string_view word, std::span<const std::string> known);

}  // namespace layercast::cli
