package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-project/parley/internal/pgtest"
)

// TestDatabaseRefuses: a database that refuses beside running processes, each with a
// role of its own. /readyz and the answers of the API say why and what to do, the log
// does so without a line for each try, and when it is over everything that was begun
// ends as it has to, without a new start, and no agent is called twice.
func TestDatabaseRefuses(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, pgtest.Options{})
	s.Exec(`CREATE ROLE app LOGIN PASSWORD 'one'`)
	s.Exec(`CREATE DATABASE app OWNER app`)
	r := newRolesRigOn(t, buildBinary(t), "postgres", 100*time.Millisecond, fmt.Sprintf("postgres://app:one@%s/app", s.Addr()))
	b := &besideRig{rolesRig: r}
	b.api = b.start("api", "api")
	b.procs = []*roleProcess{b.api, b.start("executor", "executor"), b.start("bridge", "bridge")}
	b.execute(b.api, 0)
	admin, err := pgx.Connect(t.Context(), s.URL("app"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	for i, tt := range []struct {
		name           string
		refuse, allow  []string
		part, says     string
		answer         string
		cut, staysLong bool
	}{
		{
			name: "read only", refuse: []string{`ALTER ROLE app SET default_transaction_read_only = on`}, allow: []string{`ALTER ROLE app RESET default_transaction_read_only`},
			part: "database", says: "takes no writes", answer: "default_transaction_read_only", cut: true,
		},
		{
			name: "table gone", refuse: []string{`ALTER TABLE attempt RENAME TO away`}, allow: []string{`ALTER TABLE away RENAME TO attempt`},
			part: "schema", says: "the table attempt", answer: "the table attempt",
		},
		{
			name: "agents gone", refuse: []string{`ALTER TABLE agents RENAME TO away`}, allow: []string{`ALTER TABLE away RENAME TO agents`},
			part: "schema", says: "the table agents", staysLong: true,
		},
		{
			name: "no connections", refuse: []string{`ALTER ROLE app CONNECTION LIMIT 0`}, allow: []string{`ALTER ROLE app CONNECTION LIMIT -1`},
			part: "database", says: "does not answer", answer: "CONNECTION LIMIT", cut: true,
		},
	} {
		began := b.loudest()
		var ids []string
		var starting sync.WaitGroup
		starting.Go(func() { ids = b.startsNamed(fmt.Sprintf("refused%d-", i), 40, 100*time.Millisecond) })
		wait(t, time.Second)
		apply := func(statements []string) {
			for _, statement := range statements {
				b.exec(t, admin, statement)
			}
			if tt.cut {
				b.exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`)
			}
		}
		apply(tt.refuse)
		if !tt.staysLong {
			b.awaitPart(t, tt.part, tt.says)
		}
		if tt.answer != "" {
			if status, header, body := b.ask(t, http.MethodPost, "/api/v1/workflows/chain/execute", `{"input_data":{"n":"x"}}`); status != http.StatusServiceUnavailable ||
				header.Get("Retry-After") == "" || !strings.Contains(body, tt.answer) {
				t.Errorf("%s: a start is answered with %d %v %s", tt.name, status, header, body)
			}
		}
		wait(t, 3*time.Second)
		if tt.staysLong { // agents are remembered for a while
			b.ask(t, http.MethodGet, "/api/v1/agents", "")
		}
		apply(tt.allow)
		b.awaitWhole(t)
		starting.Wait()
		b.complete(t, ids)
		for n, p := range b.procs {
			if lines := loud(p.output.String()[began[n]:]); len(lines) > 30 {
				t.Errorf("%s: %s has %d lines about it:\n%s", tt.name, p.name, len(lines), strings.Join(lines, "\n"))
			}
		}
	}
	b.stopAll()
	b.log.check(t)
}

// awaitPart waits until every process says at /readyz that a part is not there, in
// these words.
func (b *besideRig) awaitPart(t *testing.T, part, words string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, p := range b.procs {
		for ; ; wait(t, 50*time.Millisecond) {
			status, body, err := b.get(p, "/readyz")
			var ready struct {
				Checks map[string]string `json:"checks"`
			}
			if err == nil && status == http.StatusServiceUnavailable && json.Unmarshal([]byte(body), &ready) == nil && strings.Contains(ready.Checks[part], words) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s answers %d %s %v\n%s", p.name, status, body, err, p.output)
			}
		}
	}
}
