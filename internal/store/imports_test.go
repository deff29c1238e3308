package store

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/parley-project/parley"
)

// importedRun is a run that was carried out elsewhere.
func importedRun(id string, status parley.RunStatus) Import {
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	run := Run{
		ID: id, Workflow: "order", Name: "Order", DefinitionID: "def-1", Seq: 2, Status: status, TriggeredBy: "api",
		CreatedAt: at(0), StartedAt: at(0), UpdatedAt: at(2), EndedAt: at(2),
	}
	return Import{Kind: ImportRun, ID: id, Digest: "1:" + string(status), At: at(9), Run: &run, Events: []parley.Event{
		{Seq: 1, At: at(0), Type: parley.EventRunStarted, Run: id, Data: []byte(`{"input": {"a":1}}`)},
		{Seq: 2, At: at(2), Type: parley.EventRunFailed, Run: id, Data: []byte(`{}`)},
	}}
}

// TestImportRun: an imported run is there once, however often it is imported; one
// that has changed over there has its new history afterwards and nothing of the
// old one; a run of ours is never touched.
func TestImportRun(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := importedRun("run-1", parley.RunFailed)
		diff(t, must(db.Import(ctx, in))(t), ImportNew)
		diff(t, must(db.Import(ctx, in))(t), ImportSame)
		diff(t, must(db.History(ctx, "run-1"))(t), History{Run: *in.Run, Events: in.Events})

		begin(t, db, "run-ours")
		beside := importedRun("run-2", parley.RunFailed)
		diff(t, must(db.Import(ctx, beside))(t), ImportNew)
		in = importedRun("run-1", parley.RunCompleted)
		diff(t, must(db.ImportState(ctx, ImportRun, "run-1", in.Digest))(t), ImportChanged)
		in.Events[1].Type = parley.EventRunCompleted
		diff(t, must(db.Import(ctx, in))(t), ImportChanged)
		diff(t, must(db.History(ctx, "run-1"))(t), History{Run: *in.Run, Events: in.Events})
		diff(t, must(db.History(ctx, "run-2"))(t), History{Run: *beside.Run, Events: beside.Events})
		_, total, err := db.Runs(ctx, parley.RunQuery{})
		check(t, err)
		diff(t, total, 3)

		ours := must(db.RunRow(ctx, "run-ours"))(t)
		_, err = db.Import(ctx, importedRun("run-ours", parley.RunFailed))
		wantCode(t, err, parley.CodeConflict)
		diff(t, must(db.RunRow(ctx, "run-ours"))(t), ours)
		if ours.Imported() || !in.Run.Imported() {
			t.Error("imported runs and others are not told apart")
		}
	})
}

// TestImportLongRun: a long history is kept in rows that can be read one by one;
// lists read the first and the last of its events and no other.
func TestImportLongRun(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := importedRun("run-1", parley.RunFailed)
		last := in.Events[1]
		in.Events = in.Events[:1]
		for n := range 300 {
			data := []byte(`{}`)
			if n%100 == 50 {
				data = []byte(`"` + strings.Repeat("x", maxRowBytes) + `"`)
			}
			in.Events = append(in.Events, parley.Event{Seq: int64(n) + 2, At: epoch, Type: parley.EventRunWarning, Run: "run-1", Data: data})
		}
		last.Seq = 302
		in.Run.Seq, in.Events = 302, append(in.Events, last)
		must(db.Import(ctx, in))(t)
		// Compared as wholes: a difference in so much text is of use to nobody.
		same := func(got, want []parley.Event) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d events are not those that were imported", len(got))
			}
		}
		same(must(db.History(ctx, "run-1"))(t).Events, in.Events)
		rows := 0
		check(t, db.read(ctx, `SELECT seq, last, length(data) FROM event WHERE run = ? ORDER BY seq`, func(r *record) error {
			first, last, size := r.int(), r.int(), r.int()
			if rows++; size > 2*maxRowBytes || last-first >= maxRowEvents || (first == 1) != (last == 1) || (first == 302) != (last == 302) {
				t.Errorf("a row holds events %d to %d in %d bytes", first, last, size)
			}
			return nil
		}, "run-1"))
		if rows < 8 {
			t.Errorf("%d rows", rows)
		}
		for after := range int64(302) {
			same(must(db.Events(ctx, "run-1", after, 7))(t), in.Events[after:min(after+7, 302)])
		}
	})
}

// TestImportRunChecked: only what has ended, and is whole, can be imported.
func TestImportRunChecked(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		for name, change := range map[string]func(*Import){
			"under way":  func(in *Import) { in.Run.Status, in.Run.EndedAt = parley.RunRunning, time.Time{} },
			"no end":     func(in *Import) { in.Run.EndedAt = time.Time{} },
			"a version":  func(in *Import) { in.Run.Version = "1" },
			"a gap":      func(in *Import) { in.Run.Seq = 3 },
			"no events":  func(in *Import) { in.Run.Seq, in.Events = 0, nil },
			"no digest":  func(in *Import) { in.Digest = "" },
			"no record":  func(in *Import) { in.Run = nil },
			"other kind": func(in *Import) { in.Kind = ImportAgent },
		} {
			in := importedRun("run-1", parley.RunFailed)
			change(&in)
			_, err := db.Import(t.Context(), in)
			if parley.CodeOf(err) != parley.CodeInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, total, err := db.Runs(t.Context(), parley.RunQuery{})
		check(t, err)
		diff(t, total, 0)
	})
}

// TestImportAgent: an agent follows what it is over there, until somebody changes
// it here.
func TestImportAgent(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		a := newAgent("a")
		in := func(digest string) Import {
			c := a
			return Import{Kind: ImportAgent, ID: a.ID, Digest: digest, At: epoch, Agent: &c}
		}
		diff(t, must(db.Import(ctx, in("1")))(t), ImportNew)
		diff(t, must(db.Agent(ctx, "a"))(t), a)
		beside := newAgent("beside")
		check(t, db.CreateAgent(ctx, beside))
		a.URL, a.Status, a.UpdatedAt, a.UpdatedBy = "https://new/", parley.AgentInactive, epoch.Add(time.Hour), "cem"
		a.Description, a.Protocol, a.ProtocolConfig = "reads", parley.ProtocolSimpleA2A, json.RawMessage(`{"v":2}`)
		a.Auth = parley.Auth{Type: parley.AuthBearer, Header: "X-Other", Secret: "env:OTHER"}
		a.Timeout, a.Retry.MaxRetries = time.Minute, 3
		diff(t, must(db.Import(ctx, in("2")))(t), ImportChanged)
		diff(t, must(db.Agent(ctx, "a"))(t), a)

		here := a
		here.Description, here.UpdatedAt = "changed here", epoch.Add(2*time.Hour)
		check(t, db.UpdateAgent(ctx, here, a.UpdatedAt))
		diff(t, must(db.Import(ctx, in("2")))(t), ImportSame)
		a.URL = "https://newer/"
		_, err := db.Import(ctx, in("3"))
		wantCode(t, err, parley.CodeConflict)
		diff(t, must(db.Agent(ctx, "a"))(t), here)

		b := newAgent("b")
		check(t, db.CreateAgent(ctx, b))
		other := b
		other.ID = "id-elsewhere"
		_, err = db.Import(ctx, Import{Kind: ImportAgent, ID: other.ID, Digest: "1", At: epoch, Agent: &other})
		wantCode(t, err, parley.CodeConflict)
		diff(t, must(db.Agent(ctx, "b"))(t), b)
		diff(t, must(db.ImportState(ctx, ImportAgent, other.ID, "1"))(t), ImportNew)
		diff(t, must(db.Agent(ctx, "beside"))(t), beside)
	})
}

// TestImportDefinition: versions keep their ids and their numbers; a new plan
// under the same id is a new version, and the old one stays.
func TestImportDefinition(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		def := func(id, version, plan string) *Definition {
			return &Definition{
				ID: id, Workflow: "order", Name: "Order", Version: version, Format: "json", Source: []byte(plan), Digest: "d" + plan,
				Status: parley.AgentActive, CreatedAt: epoch, UpdatedAt: epoch, CreatedBy: "ann",
			}
		}
		put := func(d *Definition, digest string) (ImportState, error) {
			return db.Import(ctx, Import{Kind: ImportDefinition, ID: d.ID, Digest: digest, At: epoch, Definition: d})
		}
		diff(t, must(put(def("u1", "1", "{}"), "1"))(t), ImportNew)
		diff(t, must(put(def("u2", "2", "[]"), "1"))(t), ImportNew)
		diff(t, must(put(def("u1", "1", "{}"), "1"))(t), ImportSame)

		switched := def("u1", "1", "{}")
		switched.Status, switched.Description, switched.UpdatedAt, switched.UpdatedBy = parley.AgentInactive, "switched off", epoch.Add(time.Hour), "cem"
		diff(t, must(put(switched, "2"))(t), ImportChanged)
		got := must(db.Definition(ctx, "u1"))(t)
		switched.Number = 1
		diff(t, got, *switched)
		diff(t, must(db.Definition(ctx, "u2"))(t).Status, parley.AgentActive)

		changed := def("u1", "3", "{ }")
		diff(t, must(put(changed, "3"))(t), ImportChanged)
		changed.Number = 3
		diff(t, must(db.Definition(ctx, "u1"))(t), *changed)
		diff(t, must(db.Definition(ctx, "order@1"))(t), *switched)
		diff(t, len(versionsOf(t, db, "order")), 3)

		_, err := put(def("u3", "2", "{  }"), "1") // the version has another plan
		wantCode(t, err, parley.CodeConflict)
		check(t, db.SetDefinitionStatus(ctx, "u2", parley.AgentDeleted, "cem", epoch.Add(time.Minute)))
		_, err = put(def("u2", "4", "{}"), "2")
		wantCode(t, err, parley.CodeConflict)
	})
}

// TestImportAudit: the audit record can be read, newest first, by whom it is about.
func TestImportAudit(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		entry := func(id string, n int, entity, action string) Audit {
			return Audit{
				ID: id, At: epoch.Add(time.Duration(n) * time.Second), EntityType: "agent", EntityID: entity,
				Action: action, By: "system", Changes: []byte(`{"name": "a"}`),
			}
		}
		all := []Audit{entry("c", 3, "x", "delete"), entry("b", 2, "y", "create"), entry("a", 1, "x", "create")}
		all[1].Changes = nil
		for range 2 {
			for _, a := range all {
				_, err := db.Import(ctx, Import{Kind: ImportAudit, ID: a.ID, Digest: "1", At: epoch, Audit: &a})
				check(t, err)
			}
		}
		for _, c := range []struct {
			q    AuditQuery
			want []Audit
		}{
			{AuditQuery{}, all},
			{AuditQuery{EntityID: "x"}, []Audit{all[0], all[2]}},
			{AuditQuery{EntityID: "x", Action: "create", EntityType: "agent"}, all[2:]},
			{AuditQuery{EntityType: "run"}, nil},
			{AuditQuery{Without: "run"}, all},
			{AuditQuery{Without: "agent"}, nil},
			{AuditQuery{EntityType: "agent", Without: "agent"}, nil},
			{AuditQuery{Page: parley.Page{Offset: 1, Limit: 1}}, all[1:2]},
		} {
			got, _, err := db.Audits(ctx, c.q)
			check(t, err)
			diff(t, got, c.want)
		}
		_, total, err := db.Audits(ctx, AuditQuery{})
		check(t, err)
		diff(t, total, 3)

		changed := Audit{ID: "b", At: epoch, EntityType: "workflow", EntityID: "z", Action: "retry", By: "ann", Changes: []byte(`{}`)}
		diff(t, must(db.Import(ctx, Import{Kind: ImportAudit, ID: "b", Digest: "2", At: epoch, Audit: &changed}))(t), ImportChanged)
		got, _, err := db.Audits(ctx, AuditQuery{})
		check(t, err)
		diff(t, got, []Audit{all[0], all[2], changed})
	})
}

// TestForeseeImport: what a dry run says is what the import does, refusals and
// their texts included; it writes nothing, and neither does an import that is
// refused.
func TestForeseeImport(t *testing.T) {
	eachDB(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		definition := func(id, version, plan string) Import {
			return Import{Kind: ImportDefinition, ID: id, Digest: version + plan, At: epoch, Definition: &Definition{
				ID: id, Workflow: "order", Name: "Order", Version: version, Format: "json", Source: []byte(plan), Digest: "d" + plan,
				Status: parley.AgentActive, CreatedAt: epoch, UpdatedAt: epoch,
			}}
		}
		agent := func(id, name, digest string) Import {
			a := newAgent(name)
			a.ID = id
			return Import{Kind: ImportAgent, ID: id, Digest: digest, At: epoch, Agent: &a}
		}
		want := func(in Import, state ImportState, code parley.Code) {
			t.Helper()
			foreseen, err := db.ForeseeImport(ctx, in)
			got, errImport := db.Import(ctx, in)
			if parley.CodeOf(errImport) != code || err == nil != (errImport == nil) || err != nil && err.Error() != errImport.Error() {
				t.Errorf("%s %s: foreseen %v, met %v", in.Kind, in.ID, err, errImport)
			}
			if code != "" {
				state = ""
			}
			diff(t, []ImportState{foreseen, got}, []ImportState{state, state})
		}
		want(importedRun("run-1", parley.RunFailed), ImportNew, "")
		want(importedRun("run-1", parley.RunFailed), ImportSame, "")
		want(definition("u1", "1", "{}"), ImportNew, "")
		want(agent("a1", "first", "1"), ImportNew, "")
		want(agent("a1", "first", "2"), ImportChanged, "")
		want(agent("a2", "first", "1"), ImportNew, parley.CodeConflict)
		want(agent("u1", "second", "1"), ImportNew, "") // what others are called is no matter
		check(t, db.CreateAgent(ctx, newAgent("ours")))
		want(agent("id-ours", "third", "1"), ImportNew, parley.CodeConflict)

		// A version that is changed in place gets a name that another has here.
		must(db.PutDefinition(ctx, *definition("ours", "4", "[]").Definition, PutVersion))(t)
		want(definition("u1", "4", "{ }"), ImportChanged, parley.CodeConflict)
		want(definition("u2", "4", "{ }"), ImportNew, parley.CodeConflict)
		_, _, err := db.SetAlias(ctx, AliasChange{WorkflowAlias: parley.WorkflowAlias{Workflow: "order", Alias: "stable", Version: "4", UpdatedAt: epoch}, AuditID: "x"})
		check(t, err)
		want(definition("u1", "stable", "{ }"), ImportChanged, parley.CodeConflict)

		// A run that is being removed keeps what is left of it until that is removed.
		check(t, db.submit(ctx, synced, func(s *session) error {
			_, err := s.exec(markRemoved, "run-1", unixMicro(epoch))
			return err
		}))
		want(importedRun("run-1", parley.RunCompleted), ImportChanged, parley.CodeConflict)
		if n := len(must(db.Events(ctx, "run-1", 0, 10))(t)); n != 2 {
			t.Errorf("%d events are left of a run whose import was refused", n)
		}

		// One that was removed, and begun here since, is ours.
		in := importedRun("run-2", parley.RunFailed)
		want(in, ImportNew, "")
		check(t, db.submit(ctx, synced, func(s *session) error {
			_, err := s.exec(`DELETE FROM run WHERE id = ?`, "run-2")
			_, err2 := s.exec(`DELETE FROM event WHERE run = ?`, "run-2")
			return errors.Join(err, err2)
		}))
		begin(t, db, "run-2")
		ours := must(db.RunRow(ctx, "run-2"))(t)
		want(importedRun("run-2", parley.RunCompleted), ImportChanged, parley.CodeConflict)
		diff(t, must(db.RunRow(ctx, "run-2"))(t), ours)
	})
}
