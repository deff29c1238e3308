// Package zoneauth decides who may call an Execution Zone, and makes the TLS
// configurations of both ends.
//
// A [Check] looks at a request and says no with an error for the log, which tells
// a wrong audience from an expired token and never holds the token. The caller is
// told nothing but 401, or 503 where [ErrUnavailable] says that nobody could
// decide.
package zoneauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/parley-project/parley"
)

// A Check returns nil for a request whose caller is believed. Any number of
// goroutines may use it.
type Check func(*http.Request) error

// ErrUnavailable: whether the caller is to be believed cannot be told now.
var ErrUnavailable = errors.New("the issuer could not be asked")

// The reasons of a refusal, for the log.
var (
	ErrNoToken      = errors.New("no bearer token")
	ErrMalformed    = errors.New("the token is malformed")
	ErrWrongToken   = errors.New("the token is another one")
	ErrAlgorithm    = errors.New("the token is signed with an algorithm that is not accepted")
	ErrSignature    = errors.New("the signature of the token is wrong")
	ErrIssuer       = errors.New("the token is from another issuer")
	ErrAudience     = errors.New("the token is for another audience")
	ErrExpired      = errors.New("the token has expired")
	ErrNotYet       = errors.New("the token is not valid yet")
	ErrSeveralSaid  = errors.New("the request has several Authorization headers")
	errEmptySecret  = errors.New("zone: the bearer token must not be empty")
	errNoAudience   = errors.New("zone: auth.oidc needs an audience, else every token of the issuer would do")
	errNoIssuer     = errors.New("zone: auth.oidc needs the https URL of an issuer")
	errNotSecure    = errors.New("the issuer, which is https, sends to an address that is not")
	errBadAlgorithm = errors.New("zone: auth.oidc takes signatures with public keys only")
)

// Bearer returns a Check for one secret that both zones know. It takes the same
// time whatever is sent.
func Bearer(secret parley.Secret) (Check, error) {
	if secret.IsZero() {
		return nil, errEmptySecret
	}
	want := sha256.Sum256(secret.Reveal())
	return func(r *http.Request) error {
		token, err := tokenOf(r)
		if err != nil {
			return err
		}
		got := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return ErrWrongToken
		}
		return nil
	}, nil
}

// maxToken is the longest token that is looked at.
const maxToken = 16 << 10

// tokenOf gives what stands after "Bearer" (RFC 6750 §2.1).
func tokenOf(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", ErrNoToken
	}
	if len(values) > 1 {
		return "", ErrSeveralSaid
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	switch {
	case !ok || !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", ErrNoToken
	case len(token) > maxToken:
		return "", ErrMalformed
	}
	return token, nil
}
