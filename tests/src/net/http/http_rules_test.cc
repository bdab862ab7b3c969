// Who may ask what over HTTP, by the head of a request.
#include "src/net/http/http_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace layercast::testing {
namespace {

constexpr const char* kKey = "a-key-of-some-length";

int StatusOf(const HttpHead& head, const HttpRules& rules) {
  const std::optional<HttpAnswer> refusal = RefusalOf(head, rules);
  return refusal ? refusal->status : 200;
}

HttpRules WithKey() { return {.key = HttpKeyHash(kKey), .open_paths = {"/health"}, .most_body_bytes = 100}; }

TEST(HttpRules, AKeyIsAskedForAndNoOtherWillDo) {
  const auto ask = [](const std::string& authorization, const std::string& path = "/v1/models") {
    return StatusOf({.method = "GET", .path = path, .authorization = authorization}, WithKey());
  };
  EXPECT_EQ(ask(std::string("Bearer ") + kKey), 200);
  EXPECT_EQ(ask(std::string("bearer ") + kKey), 200) << "the scheme's case does not matter";
  for (const std::string& wrong :
       {std::string(), std::string(kKey), std::string("Basic ") + kKey, std::string("Bearer "),
        std::string("Bearer ") + kKey + "x", std::string("Bearer a-key-of-some-lengtH")}) {
    EXPECT_EQ(ask(wrong), 401) << wrong;
  }
  EXPECT_EQ(ask("", "/health"), 200);
  EXPECT_EQ(ask("", "/health/"), 401);
}

TEST(HttpRules, ARefusalHasNoKeyInIt) {
  const auto refusal =
      RefusalOf({.method = "GET", .path = "/", .authorization = "Bearer not-this-one-either"}, WithKey());
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->body, ::testing::Not(::testing::HasSubstr("not-this")));
  EXPECT_THAT(refusal->body, ::testing::HasSubstr("invalid_api_key"));
}

// A page of another site, in a browser on this host, that has its name resolve to this host.
TEST(HttpRules, WithoutAKeyThisHostIsAskedByItsOwnNameAlone) {
  const auto ask = [](const std::string& host, bool local = true) {
    return StatusOf({.method = "GET", .path = "/", .host = host}, {.local = local});
  };
  for (const char* own : {"localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.1.2.3", "[::1]:8000", "[::1]"}) {
    EXPECT_EQ(ask(own), 200) << own;
  }
  for (const char* other :
       {"", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.5:8000", "[::2]"}) {
    EXPECT_EQ(ask(other), 403) << other;
    EXPECT_EQ(ask(other, false), 200) << other;
  }
}

TEST(HttpRules, ABodyIsJsonAndNoLongerThanItMayBe) {
  const auto post = [](HttpHead head) {
    head.method = "POST";
    head.path = "/v1/completions";
    return StatusOf(head, {.most_body_bytes = 100});
  };
  EXPECT_EQ(post({.content_type = "application/json", .content_length = "100"}), 200);
  EXPECT_EQ(post({.content_type = "Application/JSON; charset=utf-8"}), 200);
  for (const char* unasked :
       {"", "text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"}) {
    EXPECT_EQ(post({.content_type = unasked}), 415) << unasked;
  }
  EXPECT_EQ(post({.content_type = "application/json", .content_encoding = "gzip"}), 415);
  for (const char* longer : {"101", "-1", "18446744073709551616", "1e3", "ten"}) {
    EXPECT_EQ(post({.content_type = "application/json", .content_length = longer}), 413) << longer;
  }
}

TEST(HttpRules, OtherMethodsAndEndlessPathsAreRefused) {
  for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS", "PRI", "CONNECT"}) {
    EXPECT_EQ(StatusOf({.method = method, .path = "/"}, {}), 405) << method;
  }
  EXPECT_EQ(StatusOf({.method = "GET", .path = std::string(300, '/')}, {}), 404);
}

}  // namespace
}  // namespace layercast::testing
