package kafka_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/parley-project/parley/internal/bus"
	"github.com/parley-project/parley/internal/bus/kafka"
	"github.com/parley-project/parley/internal/kafkatest"
)

// wires are the connections of a process, which can be cut.
type wires struct {
	mu  sync.Mutex
	all []net.Conn
}

func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		w.mu.Lock()
		w.all = append(w.all, conn)
		w.mu.Unlock()
	}
	return conn, err
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.all {
		_ = conn.Close()
	}
	w.all = nil
}

// TestCredentialsRenewed: a process whose password or certificate is not taken any more
// says so, with what to do, when it makes a new connection, and goes on by itself with the
// one that it is given then. Nothing that was published is lost, and no secret is told.
func TestCredentialsRenewed(t *testing.T) {
	const renewed = "renewed-password-4"
	c := kafkatest.Start(t, kafkatest.Options{SASL: true, TLS: true})
	kafkatest.Create(t, c.Brokers(), 3, "runs")
	admin := administer(t, c.Brokers())
	anonymous, strange := c.TLS(), c.TLS()
	anonymous.Certificates, strange.RootCAs = nil, x509.NewCertPool()
	var (
		password    atomic.Value
		gone        atomic.Bool
		certificate atomic.Pointer[tls.Config]
		log         loggedLines
		w           wires
		got         tally
	)
	password.Store(kafkatest.AdminPassword)
	certificate.Store(c.TLS())
	b := open(t, kafka.Config{
		Brokers: c.SecureBrokers(), Topics: map[string]string{bus.SubjectRuns: "runs"}, Logger: log.logger(), Dialer: w.dial,
		TLS: func() (*tls.Config, error) { return certificate.Load(), nil },
		SASL: &kafka.SASL{Mechanism: kafka.ScramSHA256, User: kafkatest.AdminUser, Secret: func(context.Context) (string, error) {
			if gone.Load() {
				return "", errors.New("no " + password.Load().(string))
			}
			return password.Load().(string), nil
		}},
	})
	subscribe(t, b, spot{bus.SubjectRuns, "g"}, got.handle)
	publishMany(t, b, bus.SubjectRuns, 0, 10)
	for i, at := range []struct {
		name, says       string
		spoiled, renewed func()
	}{
		{"a password that was changed", "check bus.kafka.sasl", func() { changePassword(t, admin, renewed) }, func() { password.Store(renewed) }},
		{"a password that is gone", "check what bus.kafka.sasl.password refers to", func() { gone.Store(true) }, func() { gone.Store(false) }},
		{"a certificate that is not trusted", "check bus.kafka.tls.cert", func() { certificate.Store(anonymous) }, func() { certificate.Store(c.TLS()) }},
		{"brokers of another authority", "set bus.kafka.tls.ca", func() { certificate.Store(strange) }, func() { certificate.Store(c.TLS()) }},
	} {
		first := 10 * (i + 1)
		at.spoiled()
		publishMany(t, b, bus.SubjectRuns, first, first+5) // connections that stand are as good as before
		w.cut()
		eventually(t, at.name+" is said: "+at.says, func() bool {
			err := b.Health(t.Context())
			return err != nil && strings.Contains(err.Error(), at.says) && strings.Contains(log.String(), at.says)
		})
		at.renewed()
		eventually(t, "all is well after "+at.name, func() bool { return b.Health(t.Context()) == nil })
		publishMany(t, b, bus.SubjectRuns, first+5, first+10)
		eventually(t, "all came after "+at.name, func() bool { return got.has(0, first+10) })
	}
	if secrets := []string{kafkatest.AdminPassword, renewed}; slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(log.String(), s) }) {
		t.Errorf("the log shows a password:\n%s", log.String())
	}
}

// changePassword gives the administrator another password.
func changePassword(t *testing.T, admin *kadm.Client, password string) {
	t.Helper()
	answer, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{
		{User: kafkatest.AdminUser, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password},
	})
	if err != nil || answer.Error() != nil {
		t.Fatal(err, answer.Error())
	}
}
