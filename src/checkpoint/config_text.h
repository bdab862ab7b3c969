// What lies beside a checkpoint of its model's configuration, as text. Nobody here understands it: an engine that is
// given the checkpoint's tensors holds it against its own. Used by checkpoints, and by those who send it on.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace layercast {

inline constexpr std::size_t kMostConfigBytes = 1U << 20;  // of a text that goes to engines

// The config.json in the folder, or beside the file. Empty if there is none, or nobody may read it.
std::string ConfigTextBeside(const std::filesystem::path& path);

// The text if it is of at most kMostConfigBytes; else without what makes it long, the names of layers that a
// quantization leaves out, which engines do not compare; else empty.
std::string ConfigTextToSend(std::string text);

}  // namespace layercast
