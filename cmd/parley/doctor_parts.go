package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/server"
)

// clockApart is a difference of clocks that is worth knowing.
const clockApart = time.Second

// database looks at the database, its schema and its clock.
func (d *doctor) database(ctx context.Context) []finding {
	if d.cfg.NoLedger {
		d.skip("database", "bridge.ledger: none uses none")
		return nil
	}
	own := d.loaded.Database.URL.IsZero()
	file := filepath.Join(d.loaded.Data, "parley.db")
	if own && !exists(file) {
		return []finding{odd("database", "there is no "+file, "the first start makes it; if it should be there, name its folder with data")}
	}
	look, err := server.LookAtDatabase(ctx, d.loaded.Data, d.loaded.Database.URL, d.a.now)
	if err != nil && look.Version == "" {
		advice := "start the database, or correct database.url and database.password"
		switch {
		case own && !look.Damaged:
			advice = "let the user of Parley read it and write beside it, or name another folder with data"
		case own:
			advice = "put a copy in its place (parley backup makes one), or name another folder with data"
		}
		return []finding{broken("database", classify(err).text, advice)}
	}
	found := fine("database", look.Version+", "+look.Name)
	if look.Risk != "" {
		found = odd(found.Check, found.Found+"; "+look.Risk, "change the settings of the database server")
	}
	out := []finding{found, judgeSchema(look, err, schemaUse{own: own, auto: d.loaded.Database.Migrate == config.MigrateAuto})}
	if look.OwnClock {
		out = append(out, judgeClock(look.Ahead))
	}
	return out
}

// schemaUse says what a server does about a schema: its own new file gets one, and
// with auto every database.
type schemaUse struct{ own, auto bool }

// judgeSchema says whether a server would take the schema.
func judgeSchema(look server.DatabaseLook, err error, use schemaUse) finding {
	const name, advice = "schema", "parley migrate up"
	if err != nil {
		return broken(name, classify(err).text, "parley version tells which program this is; do not change the database by hand")
	}
	var missing int
	var at int64
	for _, s := range look.Steps {
		if s.AppliedAt.IsZero() {
			missing++
		} else {
			at = max(at, s.Version)
		}
	}
	all := len(look.Steps)
	switch {
	case missing == 0:
		return fine(name, fmt.Sprintf("current: version %d", at))
	case missing == all && (use.own || use.auto):
		return odd(name, "the database is empty", "the first start makes the schema")
	case use.auto:
		return odd(name, fmt.Sprintf("behind: %d of %d steps are missing", missing, all), "the next start applies them, as database.migrate says; copy the database before")
	case missing == all:
		return broken(name, "the database is empty", advice)
	}
	return broken(name, fmt.Sprintf("behind: %d of %d steps are missing", missing, all), advice+"; copy the database before")
}

// judgeClock says whether the clocks agree; the database's is the one that counts.
func judgeClock(ahead time.Duration) finding {
	const name = "clock"
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	text := fmt.Sprintf("the database's is %s %s this machine's", ahead.Abs().Round(time.Millisecond), direction)
	if ahead.Abs() >= clockApart {
		return odd(name, text+", and is the one that counts", "set both by NTP")
	}
	return fine(name, text)
}

// bus looks at the brokers and the topics.
func (d *doctor) bus(ctx context.Context) []finding {
	const name = "bus"
	if d.loaded.Bus.Kind != config.BusKafka {
		how := "memory: within the process"
		if !d.loaded.Database.URL.IsZero() {
			how = "memory: over the database between processes"
		}
		return []finding{fine(name, how)}
	}
	cfg, err := topicsConfig(d.loaded)
	if err != nil {
		return refused(name, err)
	}
	report, err := server.CheckTopics(ctx, *cfg)
	if err != nil {
		return []finding{broken(name, classify(err).text, "correct bus.kafka, or start the brokers; then parley topics check")}
	}
	found := "Kafka, " + plural(report.Brokers, "broker")
	if report.Cluster != "" {
		found += ", cluster " + report.Cluster
	}
	return append([]finding{fine(name, found)}, judgeTopics(report)...)
}

// traces asks whoever is to get spans whether it takes any.
func (d *doctor) traces(ctx context.Context) []finding {
	const name = "traces"
	if d.cfg.Traces == nil {
		return nil
	}
	if err := server.CheckSpanReceiver(ctx, d.cfg.Traces.Receiver); err != nil {
		if parley.CodeOf(err) == parley.CodeInvalid { // no server starts with that
			return []finding{broken(name, classify(err).text, "correct telemetry.traces, or leave it out")}
		}
		return []finding{odd(name, classify(err).text, "runs are not affected; correct telemetry.traces, or start what is to get spans")}
	}
	return []finding{fine(name, d.cfg.Traces.Receiver.URL+" takes spans")}
}

// judgeTopics gives a line for each thing that is wrong with a topic, or one for
// all of them.
func judgeTopics(report server.TopicsReport) []finding {
	const name = "topics"
	var found []finding
	for _, t := range report.Topics {
		for _, f := range t.Findings {
			text, advice := t.Plan.Topic+": "+f.Text, "parley topics check shows all"
			switch {
			case f.Unchecked:
				advice = "allow that, or have somebody run parley topics check who may"
			case !t.Exists:
				advice = "parley topics create makes what is missing"
			}
			if f.Fatal {
				found = append(found, broken(name, text, advice))
			} else {
				found = append(found, odd(name, text, advice))
			}
		}
	}
	if len(found) == 0 {
		return []finding{fine(name, fmt.Sprintf("all %d are as they should be", len(report.Topics)))}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return severity(b) - severity(a) })
	return found
}

// severity orders findings: failures are the gravest.
func severity(f finding) int {
	return slices.Index([]string{checkOK, checkWarn, checkFail}, f.Status)
}

// lookAtAgent looks at an agent of the configuration, as parley agent check does.
func lookAtAgent(ctx context.Context, looker *server.Looker, spec parley.AgentSpec) finding {
	name := "agent"
	if spec.Name != nil {
		name += " " + *spec.Name
	}
	look, err := looker.Agent(ctx, spec)
	if err != nil {
		return broken(name, classify(err).text, "correct its entry in agents; parley agent detect URL says what it speaks")
	}
	return judgeAgent(name, look)
}

// judgeAgent says whether an agent could be called.
func judgeAgent(name string, look server.AgentLook) finding {
	switch {
	case look.Program:
		return fine(name, "a program of this machine; it was not started to be asked")
	case look.Refused:
		return broken(name, look.Health.Message, "add its range to egress.allow, or correct its url")
	case !look.Health.Healthy:
		return broken(name, look.Health.Message, "start the agent, or correct its url and auth")
	case look.Failure != nil:
		return odd(name, look.Health.Message+"; what it speaks was not found out: "+look.Failure.Message, "see that its protocol is the right one")
	case len(look.Changes) > 0:
		return odd(name, look.Health.Message+"; it is not as its entry says: "+look.Changes[0], "set its protocol to what answers, or to auto")
	case look.Found == nil:
		return fine(name, look.Health.Message)
	}
	speaks := look.Found.Protocol
	if look.Found.Version != "" {
		speaks += ", A2A " + look.Found.Version + " over " + look.Found.Binding
	}
	return fine(name, speaks+"; "+look.Health.Message)
}
