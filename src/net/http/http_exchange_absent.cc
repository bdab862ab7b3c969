// Stands in for exchanges in a build without cpp-httplib.
#include "layercast/error.h"
#include "src/net/http/http_exchange.h"

namespace layercast {

class HttpExchange::Impl {};

HttpExchange::HttpExchange(HttpRules /*rules*/, Handler /*handler*/,
                           std::function<void(const HttpConnection&)> /*asked*/) {
  throw Error(ErrorCode::kUnsupported,
              "this build has no HTTP: cpp-httplib (libcpp-httplib-dev) was not found, or switched off, when it was "
              "configured");
}
HttpExchange::~HttpExchange() = default;
void HttpExchange::Serve(HttpConnection& /*connection*/) const {}

}  // namespace layercast
