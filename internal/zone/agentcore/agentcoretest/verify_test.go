package agentcoretest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/parley-project/parley/internal/zone/agentcore/agentcoretest"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const (
	body    = `{"jsonrpc":"2.0"}`
	session = "X-Amzn-Bedrock-Agentcore-Runtime-Session-Id"
)

// signed is a request as a caller sends it, with a signature made at a time for a
// region.
func signed(t *testing.T, at time.Time, region, secret string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://host.example.com/runtimes/arn%3Aaws%3Ax%2Fy/invocations?qualifier=DEFAULT", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(session, strings.Repeat("s", 40))
	sum := sha256.Sum256([]byte(body))
	r.URL.Host = r.Host
	creds := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: secret, SessionToken: "tok"}
	if err := v4.NewSigner().SignHTTP(t.Context(), creds, r, hex.EncodeToString(sum[:]), "bedrock-agentcore", region, at); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestZN6_Verifier(t *testing.T) {
	v := agentcoretest.Verifier{Region: "us-west-2", AccessKey: "AKID", Secret: "secret", SessionToken: "tok", Now: func() time.Time { return now }}
	tests := []struct {
		name   string
		at     time.Duration
		region string
		secret string
		change func(r *http.Request)
		body   string
		want   string // in the error; "" is none
	}{
		{name: "good"},
		{name: "4 minutes off", at: 4 * time.Minute},
		{name: "headers that are not signed", change: func(r *http.Request) { r.Header.Set("User-Agent", "x"); r.Header.Set("X-Amzn-Trace-Id", "y") }},
		{name: "6 minutes late", at: -6 * time.Minute, want: "clock"},
		{name: "6 minutes early", at: 6 * time.Minute, want: "clock"},
		{name: "body", body: `{"jsonrpc":"2.1"}`, want: "does not match"},
		{name: "session", change: func(r *http.Request) { r.Header.Set(session, strings.Repeat("t", 40)) }, want: "does not match"},
		{name: "second session", change: func(r *http.Request) { r.Header.Add(session, strings.Repeat("t", 40)) }, want: "does not match"},
		{name: "query", change: func(r *http.Request) { r.URL.RawQuery = "qualifier=other" }, want: "does not match"},
		{name: "query added", change: func(r *http.Request) { r.URL.RawQuery += "&accountId=1" }, want: "does not match"},
		{name: "path", change: func(r *http.Request) {
			r.URL.Path, r.URL.RawPath = "/runtimes/arn:aws:x/z/invocations", "/runtimes/arn%3Aaws%3Ax%2Fz/invocations"
		}, want: "does not match"},
		{name: "method", change: func(r *http.Request) { r.Method = http.MethodPut }, want: "does not match"},
		{name: "host", change: func(r *http.Request) { r.Host = "other.example.com" }, want: "does not match"},
		{name: "content type", change: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, want: "does not match"},
		{name: "date", change: func(r *http.Request) { r.Header.Set("X-Amz-Date", now.Add(time.Second).Format("20060102T150405Z")) }, want: "does not match"},
		{name: "other day", change: func(r *http.Request) {
			r.Header.Set("X-Amz-Date", now.Add(24*time.Hour).Format("20060102T150405Z"))
		}, want: "another date"},
		{name: "no date", change: func(r *http.Request) { r.Header.Del("X-Amz-Date") }, want: "X-Amz-Date"},
		{name: "region", region: "eu-west-1", want: "region"},
		{name: "secret", secret: "other", want: "does not match"},
		{name: "token", change: func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "other") }, want: "security token"},
		{name: "signature", change: func(r *http.Request) {
			h := r.Header.Get("Authorization")
			r.Header.Set("Authorization", h[:len(h)-1]+map[bool]string{true: "1", false: "0"}[strings.HasSuffix(h, "0")])
		}, want: "does not match"},
		{name: "header not signed", change: func(r *http.Request) { r.Header.Set("X-Amz-Target", "x") }, want: "not signed"},
		{name: "fewer headers signed", change: func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "content-type;", "", 1))
		}, want: "does not match"},
		{name: "session not signed", change: func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), ";x-amzn-bedrock-agentcore-runtime-session-id", "", 1))
		}, want: "not signed"},
		{name: "not signed", change: func(r *http.Request) { r.Header.Del("Authorization") }, want: "not signed"},
		{name: "bearer", change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, want: "not signed"},
		{name: "service", change: func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/bedrock-agentcore/", "/s3/", 1))
		}, want: "service"},
		{name: "key", change: func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "AKID", "AKIX", 1))
		}, want: "key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			region, secret, sent := "us-west-2", "secret", body
			if tt.region != "" {
				region = tt.region
			}
			if tt.secret != "" {
				secret = tt.secret
			}
			if tt.body != "" {
				sent = tt.body
			}
			r := signed(t, now.Add(tt.at), region, secret)
			if tt.change != nil {
				tt.change(r)
			}
			r.Body = http.NoBody
			err := v.Verify(r, bytes.Clone([]byte(sent)))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
