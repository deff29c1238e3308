package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	parley "github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

const wrongPassword = "not-the-password-3"

func token(user string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return kafkatest.Token(user, time.Hour), nil }
}

// given is a secret that stays what it is.
func given(secret string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return secret, nil }
}

// always is one configuration for all connections.
func always(c *tls.Config) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return c, nil }
}

// TestSecure logs in to a real broker in every way, over TLS with certificates
// on both sides, and in every wrong way, each of which New has to name.
func TestSecure(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{SASL: true, TLS: true, ACL: true})
	topics := map[string]string{bus.SubjectRuns: "secure"}
	kafkatest.Create(t, c.Brokers(), 3, "secure")
	for _, login := range []kafka.SASL{
		{Mechanism: kafka.Plain, User: kafkatest.AdminUser, Secret: given(kafkatest.AdminPassword)},
		{Mechanism: kafka.ScramSHA256, User: kafkatest.AdminUser, Secret: given(kafkatest.AdminPassword)},
		{Mechanism: kafka.ScramSHA512, User: kafkatest.AdminUser, Secret: given(kafkatest.AdminPassword)},
		{Mechanism: kafka.OAuthBearer, Secret: token(kafkatest.AdminUser)},
	} {
		t.Run(login.Mechanism, func(t *testing.T) {
			t.Parallel()
			b := open(t, kafka.Config{Brokers: c.SecureBrokers(), Topics: topics, SASL: &login, TLS: always(c.TLS())})
			roundTrip(t, b, bus.SubjectRuns, login.Mechanism)
			if err := b.Health(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("not allowed", func(t *testing.T) {
		t.Parallel()
		alice := &kafka.SASL{Mechanism: kafka.Plain, User: kafkatest.User, Secret: given(kafkatest.UserPassword)}
		b := open(t, kafka.Config{Brokers: c.SecureBrokers(), Topics: topics, SASL: alice, TLS: always(c.TLS())})
		err := b.Publish(t.Context(), bus.Message{Subject: bus.SubjectRuns, Key: "k"})
		_, err2 := b.Subscribe(t.Context(), bus.SubjectRuns, "g", func(context.Context, bus.Message) error { return nil })
		for _, err := range []error{err, err2} {
			if parley.CodeOf(err) != parley.CodeUnauthorized || !strings.Contains(err.Error(), "AUTHORIZATION_FAILED") {
				t.Errorf("%v, want that it is not allowed", err)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		refusals(t, c)
	})
}

// roundTrip publishes a message and waits for it.
func roundTrip(t *testing.T, b *kafka.Bus, subject, group string) {
	t.Helper()
	got := make(chan struct{})
	var once sync.Once
	stop, err := b.Subscribe(t.Context(), subject, group, func(_ context.Context, m bus.Message) error {
		if string(m.Value) == group { // others use the topic, too
			once.Do(func() { close(got) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := b.Publish(t.Context(), bus.Message{Subject: subject, Key: "k", Value: []byte(group)}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing arrived")
	}
}

func refusals(t *testing.T, c *kafkatest.Cluster) {
	admin := func(mechanism, password string) *kafka.SASL {
		return &kafka.SASL{Mechanism: mechanism, User: kafkatest.AdminUser, Secret: given(password)}
	}
	anonymous, strange := c.TLS(), c.TLS()
	anonymous.Certificates = nil
	strange.RootCAs = x509.NewCertPool()
	misnamed := c.TLS()
	misnamed.ServerName = "kafka.example"
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, test := range []struct {
		name, says string
		config     kafka.Config
		code       parley.Code
	}{
		{"password, plain", "refuses the login PLAIN admin", kafka.Config{SASL: admin(kafka.Plain, wrongPassword), TLS: always(c.TLS())}, parley.CodeUnauthorized},
		{"password, scram", "refuses the login SCRAM-SHA-256 admin", kafka.Config{SASL: admin(kafka.ScramSHA256, wrongPassword), TLS: always(c.TLS())}, parley.CodeUnauthorized},
		{"token of no user", "refuses the login OAUTHBEARER", kafka.Config{SASL: &kafka.SASL{Mechanism: kafka.OAuthBearer, Secret: func(context.Context) (string, error) {
			return wrongPassword, nil
		}}, TLS: always(c.TLS())}, parley.CodeUnauthorized},
		{"no token", "token of OAUTHBEARER could not be had", kafka.Config{SASL: &kafka.SASL{Mechanism: kafka.OAuthBearer, Secret: func(context.Context) (string, error) {
			return "", errors.New("the secret is " + wrongPassword)
		}}, TLS: always(c.TLS())}, parley.CodeUnauthorized},
		{"no login", "bus.kafka.sasl", kafka.Config{TLS: always(c.TLS())}, parley.CodeUnauthorized},
		{"no TLS", "bus.kafka.tls", kafka.Config{SASL: admin(kafka.Plain, kafkatest.AdminPassword)}, parley.CodeUnavailable},
		{"no own certificate", "check bus.kafka.tls.cert", kafka.Config{SASL: admin(kafka.Plain, kafkatest.AdminPassword), TLS: always(anonymous)}, parley.CodeUnavailable},
		{"unknown authority", "set bus.kafka.tls.ca", kafka.Config{SASL: admin(kafka.Plain, kafkatest.AdminPassword), TLS: always(strange)}, parley.CodeUnavailable},
		{"other name", "set bus.kafka.tls.server_name", kafka.Config{SASL: admin(kafka.Plain, kafkatest.AdminPassword), TLS: always(misnamed)}, parley.CodeUnavailable},
		{"TLS to a plain port", "leave bus.kafka.tls out", kafka.Config{Brokers: c.Brokers(), TLS: always(&tls.Config{MinVersion: tls.VersionTLS12})}, parley.CodeUnavailable},
		{"nobody there", "check bus.kafka.brokers", kafka.Config{Brokers: []string{closed.Addr().String()}}, parley.CodeUnavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.config.Brokers == nil {
				test.config.Brokers = c.SecureBrokers()
			}
			took := pulse(t)
			b, err := kafka.New(t.Context(), test.config)
			if err == nil {
				b.Close()
				t.Fatal("it was let in")
			}
			text := fmt.Sprintf("%v %+v", err, test.config.SASL)
			if parley.CodeOf(err) != test.code || !strings.Contains(text, test.says) {
				t.Errorf("%v, want code %s and %q", err, test.code, test.says)
			}
			for _, secret := range []string{wrongPassword, kafkatest.AdminPassword} {
				if strings.Contains(text, secret) {
					t.Errorf("the error shows a secret: %s", text)
				}
			}
			if d := took(); d > 12*time.Second {
				t.Errorf("it took %v", d)
			}
			t.Logf("%.1fs: %v", took().Seconds(), err)
		})
	}
}

func TestConfig(t *testing.T) {
	for _, test := range []struct {
		says   string
		config kafka.Config
	}{
		{"set bus.kafka.brokers", kafka.Config{}},
		{"both use the topic same", kafka.Config{Topics: map[string]string{bus.SubjectRuns: "same", bus.SubjectHint: "same"}}},
		{"has no topic", kafka.Config{Topics: map[string]string{bus.SubjectRuns: ""}}},
		{"is not none or gzip", kafka.Config{Compression: "snappy"}},
		{"is not one of plain", kafka.Config{SASL: &kafka.SASL{Mechanism: "GSSAPI"}}},
		{"needs a user and a password", kafka.Config{SASL: &kafka.SASL{Mechanism: kafka.Plain, User: "u"}}},
		{"needs a token", kafka.Config{SASL: &kafka.SASL{Mechanism: kafka.OAuthBearer}}},
		{"bus.kafka.instance_id", kafka.Config{InstanceID: "a b"}},
		{"write host:port", kafka.Config{Brokers: []string{"kafka:9092", "PLAINTEXT://kafka:9092"}}},
		{"write host:port", kafka.Config{Brokers: []string{"kafka:broker"}}},
		{"write host:port", kafka.Config{Brokers: []string{"kafka 9092"}}},
		{"write host:port", kafka.Config{Brokers: []string{""}}},
	} {
		if test.says != "set bus.kafka.brokers" && test.config.Brokers == nil {
			test.config.Brokers = []string{"127.0.0.1:1"}
		}
		if _, err := kafka.New(t.Context(), test.config); parley.CodeOf(err) != parley.CodeInvalid || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v, want %q", err, test.says)
		}
	}
}

// TestBrokersWithoutPort: brokers that are named without a port have the usual one, and
// nobody says of them that another broker has named them.
func TestBrokersWithoutPort(t *testing.T) {
	t.Parallel()
	var dialed sync.Map
	_, err := kafka.New(t.Context(), kafka.Config{
		Brokers: []string{"kafka", "2001:db8::1", "[2001:db8::2]"},
		Dialer: func(_ context.Context, network, address string) (net.Conn, error) {
			dialed.Store(address, true)
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}}
		},
	})
	if parley.CodeOf(err) != parley.CodeUnavailable || !strings.Contains(err.Error(), "check bus.kafka.brokers") || strings.Contains(err.Error(), "what a broker names") {
		t.Errorf("%v", err)
	}
	for _, address := range []string{"kafka:9092", "[2001:db8::1]:9092", "[2001:db8::2]:9092"} {
		if _, ok := dialed.Load(address); !ok {
			t.Errorf("%s was not tried", address)
		}
	}
}
