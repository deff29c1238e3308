package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	parley "github.com/parley-project/parley"
)

// tlsError is a handshake that failed.
type tlsError struct {
	address string
	err     error
}

func (e *tlsError) Error() string { return "TLS with " + e.address + ": " + e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

// elsewhereError is an address that cannot be reached and is none of bus.kafka.brokers: a
// broker has named it.
type elsewhereError struct {
	address string
	err     error
}

func (e *elsewhereError) Error() string {
	return e.err.Error() + " (" + e.address + " is what a broker names as its address)"
}
func (e *elsewhereError) Unwrap() error { return e.err }

// secretError is a secret that could not be had. Its text names no cause: who
// makes tokens may put anything into it.
type secretError struct {
	mechanism string
	err       error
}

func (e *secretError) Error() string {
	return "the " + e.kind() + " of " + e.mechanism + " could not be had"
}
func (e *secretError) Unwrap() error { return e.err }

// kind is what the secret is called in the configuration.
func (e *secretError) kind() string {
	if e.mechanism == OAuthBearer {
		return "token"
	}
	return "password"
}

func (e *secretError) advice() string { return "check what bus.kafka.sasl." + e.kind() + " refers to" }

// explainPing says why no broker could be talked to within that time, and what to do.
func (b *Bus) explainPing(err error, within time.Duration) error {
	at := strings.Join(b.cfg.Brokers, ", ")
	var (
		handshake *tlsError
		eof       *kgo.ErrFirstReadEOF
		secret    *secretError
		wire      *net.OpError
	)
	switch {
	case errors.As(err, &secret):
		return parley.Errorf(parley.CodeUnauthorized, "Kafka at %s: %w; %s", at, secret, secret.advice())
	case refusesLogin(err):
		return parley.Errorf(parley.CodeUnauthorized, "Kafka at %s refuses the login %v: %w; check bus.kafka.sasl", at, b.cfg.SASL, err)
	case errors.Is(err, kerr.UnsupportedSaslMechanism), errors.Is(err, kerr.IllegalSaslState):
		return parley.Errorf(parley.CodeUnauthorized, "Kafka at %s does not take the mechanism of %v: %w; check bus.kafka.sasl.mechanism and the listener's port",
			at, b.cfg.SASL, err)
	case errors.Is(err, context.DeadlineExceeded):
		return parley.Errorf(parley.CodeUnavailable, "Kafka at %s does not answer within %v: %w; check bus.kafka.brokers, and bus.kafka.tls if the listener wants it", at, within, err)
	case errors.As(err, &handshake):
		return parley.Errorf(parley.CodeUnavailable, "Kafka: %w; %s", handshake, tlsAdvice(handshake))
	case endsTLS(err):
		return parley.Errorf(parley.CodeUnavailable, "Kafka at %s ends TLS: %w; %s", at, err, untrustedAdvice)
	case errors.As(err, &eof) && b.cfg.SASL == nil:
		return parley.Errorf(parley.CodeUnauthorized, "Kafka at %s closes the connection (%w): it may want a login or TLS; set bus.kafka.sasl or bus.kafka.tls", at, err)
	case errors.As(err, &wire) && wire.Op == "dial":
		return parley.Errorf(parley.CodeUnavailable, "no Kafka broker of %s can be reached: %w; check bus.kafka.brokers and that Kafka runs", at, err)
	}
	return parley.Errorf(parley.CodeUnavailable,
		"Kafka at %s does not speak as expected: %w; check the port in bus.kafka.brokers, and whether it wants bus.kafka.tls or bus.kafka.sasl", at, err)
}

func tlsAdvice(err error) string {
	var (
		name   x509.HostnameError
		verify *tls.CertificateVerificationError
		header tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &header), errors.Is(err, io.EOF):
		return "the listener may not speak TLS; check the port, or leave bus.kafka.tls out"
	case errors.As(err, &name):
		return "the certificate is for another name; set bus.kafka.tls.server_name"
	case errors.As(err, &verify):
		return "the certificate is not trusted; set bus.kafka.tls.ca to the authority's"
	}
	return "check bus.kafka.tls: the authority, and the own certificate if the broker asks for one"
}

// explain makes an error of Kafka's one for people. what is what was tried, rights are
// those that it takes.
func explain(err error, what string, rights ...string) error {
	if _, ok := errors.AsType[*parley.Error](err); ok || err == nil {
		return err
	}
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		return ErrClosed
	case errors.Is(err, kerr.UnknownTopicID):
		return parley.Errorf(parley.CodeNotFound,
			"Kafka: %s: the topic was deleted, or a broker has just started and does not know it yet: %w; make it with `parley topics create` if it is missing; one that was made anew is used within %v", what, err, 2*remadeLook)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return parley.Errorf(parley.CodeNotFound, "Kafka: %s: the topic does not exist: %w; make it with `parley topics create`", what, err)
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return parley.Errorf(parley.CodeLimit, "Kafka: %s: %w; raise max.message.bytes of the topic, or lower bus.kafka.max_record", what, err)
	case denied(err):
		return parley.Errorf(parley.CodeUnauthorized, "Kafka: %s: %w; %s", what, err, grantAdvice(err, rights))
	case refusesLogin(err):
		return parley.Errorf(parley.CodeUnauthorized, "Kafka: %s: the login is refused: %w; %s", what, err, loginAdvice)
	case errors.Is(err, kerr.FencedInstanceID):
		return parley.Errorf(parley.CodeConflict, "Kafka: %s: another process has taken the instance id over: %w; give every process its own bus.kafka.instance_id; this one goes on when that one has ended",
			what, err)
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return parley.Errorf(parley.CodeConflict, "Kafka: %s: %w; %s", what, err, alienAdvice)
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		return parley.Errorf(parley.CodeUnavailable, "Kafka: %s: too few replicas are in sync: %w; bring the brokers back", what, err)
	}
	if advice := brokerAdvice(err); advice != "" {
		return parley.Errorf(parley.CodeUnavailable, "Kafka: %s: %w; %s", what, err, advice)
	}
	return parley.Errorf(parley.CodeUnavailable, "Kafka: %s: %w", what, err)
}

// ofTopic reports whether an error is about one topic: that it is gone, or may not be read.
func ofTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed)
}

// What to do about secrets and certificates that were good, and are not any more.
const (
	loginAdvice     = "check bus.kafka.sasl; a password that is in a file is read anew for each connection, one in a variable at the start"
	untrustedAdvice = "check bus.kafka.tls.cert and bus.kafka.tls.key: it asks for a certificate that it trusts"
)

// refusesLogin reports whether a broker takes the secret for a wrong one.
func refusesLogin(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || strings.Contains(err.Error(), "oauth response")
}

// endsTLS reports whether a broker has ended TLS, as it does when it does not trust the own
// certificate.
func endsTLS(err error) bool {
	wire, ok := errors.AsType[*net.OpError](err)
	return ok && wire.Op == "remote error"
}

// brokerAdvice says what to do about secrets, certificates and limits that brokers and topics
// are set to; "" where it knows nothing.
func brokerAdvice(err error) string {
	var (
		secret *secretError
		verify *tls.CertificateVerificationError // what else fails in a handshake may be a broker that stops
	)
	switch {
	case errors.As(err, &secret):
		return secret.advice()
	case refusesLogin(err):
		return loginAdvice
	case endsTLS(err):
		return untrustedAdvice
	case errors.As(err, &verify):
		return tlsAdvice(err)
	case isElsewhere(err):
		return "that address has to be reached from here, too: check advertised.listeners of the brokers, names and firewalls"
	case errors.Is(err, kerr.GroupMaxSizeReached):
		return "raise group.max.size of the brokers, or run fewer processes; that is tried again"
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return "set group.min.session.timeout.ms of the brokers to 10000 or less, and group.max.session.timeout.ms to no less; that is tried again"
	case errors.Is(err, kerr.InvalidTimestamp):
		return "compare the clock of this machine with the brokers', and look at message.timestamp.before.max.ms and message.timestamp.after.max.ms of the topic"
	case errors.Is(err, kerr.InvalidRecord):
		return "a topic whose cleanup.policy is compact takes no record without a key; set it to delete"
	case errors.Is(err, kerr.PolicyViolation):
		return "a policy of the brokers forbids it; ask who runs them"
	}
	return ""
}

const alienAdvice = "the group has members of another kind, such as the bridge of the existing platform; stop them, or choose another group (bus.kafka.groups)"

func isElsewhere(err error) bool {
	_, ok := errors.AsType[*elsewhereError](err)
	return ok
}

func noGroup(subject string) error {
	return parley.Errorf(parley.CodeInvalid, "%s: acknowledging later needs a group", subject)
}

func noTopic(subject string) error {
	return parley.Errorf(parley.CodeInvalid, "the subject %s has no topic; name one in bus.kafka.topics", subject)
}
