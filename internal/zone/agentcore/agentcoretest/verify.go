package agentcoretest

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	service   = "bedrock-agentcore"
	algorithm = "AWS4-HMAC-SHA256"
	maxSkew   = 5 * time.Minute
	timeForm  = "20060102T150405Z"

	sessionHeader = "X-Amzn-Bedrock-Agentcore-Runtime-Session-Id"
)

// A Verifier checks signatures of version 4 by making them again.
type Verifier struct {
	Region, AccessKey, Secret string
	// SessionToken is required of callers if it is set.
	SessionToken string
	Now          func() time.Time
}

// authorization is the header of a signed request.
type authorization struct {
	key, date, region, service, signature string
	signed                                []string
}

// Verify checks the signature of r, whose body is body.
func (v Verifier) Verify(r *http.Request, body []byte) error {
	a, err := parseAuthorization(r.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	at, err := time.Parse(timeForm, r.Header.Get("X-Amz-Date"))
	if err != nil {
		return errors.New("X-Amz-Date is missing or malformed")
	}
	skew := v.Now().Sub(at).Abs()
	switch {
	case a.key != v.AccessKey:
		return errors.New("the access key is not known")
	case a.date != at.Format("20060102"):
		return errors.New("the scope has another date")
	case a.region != v.Region:
		return fmt.Errorf("the scope has the region %s, want %s", a.region, v.Region)
	case a.service != service:
		return fmt.Errorf("the scope has the service %s", a.service)
	case skew > maxSkew:
		return fmt.Errorf("signature expired: the clock is off by %s", skew)
	case v.SessionToken != r.Header.Get("X-Amz-Security-Token"):
		return errors.New("the security token is another one")
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if (strings.HasPrefix(lower, "x-amz-") || strings.HasPrefix(lower, "x-amzn-bedrock-")) && !slices.Contains(a.signed, lower) {
			return fmt.Errorf("the header %s is not signed", name)
		}
	}
	if !slices.Contains(a.signed, "host") {
		return errors.New("the host is not signed")
	}
	return v.again(r, body, a, at)
}

// again makes the signature and compares.
func (v Verifier) again(r *http.Request, body []byte, a authorization, at time.Time) error {
	clone := r.Clone(r.Context())
	clone.Header = http.Header{}
	clone.ContentLength = 0
	clone.URL.Host = r.Host
	for _, name := range a.signed {
		switch name {
		case "host":
		case "content-length":
			clone.ContentLength = r.ContentLength
		default:
			clone.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	clone.Body = io.NopCloser(bytes.NewReader(body))
	sum := sha256.Sum256(body)
	creds := aws.Credentials{AccessKeyID: v.AccessKey, SecretAccessKey: v.Secret, SessionToken: v.SessionToken}
	if err := v4.NewSigner().SignHTTP(r.Context(), creds, clone, hex.EncodeToString(sum[:]), service, v.Region, at); err != nil {
		return err
	}
	want, err := parseAuthorization(clone.Header.Get("Authorization"))
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(want.signature), []byte(a.signature)) != 1 {
		return errors.New("the request signature we calculated does not match the signature you provided")
	}
	return nil
}

func parseAuthorization(header string) (authorization, error) {
	var a authorization
	kind, rest, _ := strings.Cut(header, " ")
	if kind != algorithm {
		return a, errors.New("the request is not signed")
	}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			scope := strings.Split(value, "/")
			if len(scope) != 5 || scope[4] != "aws4_request" {
				return a, errors.New("the scope is malformed")
			}
			a.key, a.date, a.region, a.service = scope[0], scope[1], scope[2], scope[3]
		case "SignedHeaders":
			a.signed = strings.Split(value, ";")
		case "Signature":
			a.signature = value
		}
	}
	if a.key == "" || a.signature == "" || len(a.signed) == 0 {
		return a, errors.New("the authorization is incomplete")
	}
	return a, nil
}
