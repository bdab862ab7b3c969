// Captures what UCX tells only by printing it: the names of lanes.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace layercast::ucx_channel {

// What `print` writes to the stream that it is given; empty if there is no memory for a stream.
template <typename Print>
std::string Printed(const Print& print) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const stream = ::open_memstream(&text, &size);
  if (stream == nullptr) return {};
  print(stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  return {text, size};
}

}  // namespace layercast::ucx_channel
