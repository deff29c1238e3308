package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/parley-project/parley/internal/bridge"
)

// Binding is a way other than JSON-RPC to carry A2A 1.0.
type Binding struct {
	// Name is that of protocol_config.binding, Label how errors are called there.
	Name, Label string
	// Place gives where an agent is that is at url over JSON-RPC, or an
	// [*UnsayableError]; nil: there.
	Place func(url string) (string, error)
	// Agent makes the agent that does the same as that of turns. Its error is an
	// [*UnsayableError] if the binding has no counterpart.
	Agent func(turns []Turn) (BindingAgent, error)
	// Raise plays the dialogues that name no dialect, and those alone, as ones of
	// A2A 1.0. What must come of them is what comes of them over JSON-RPC then.
	Raise bool
	// Text makes texts of an outcome comparable, whatever the binding; nil: they
	// are.
	Text func(string) string
}

// BindingAgent is an agent that does over a binding what a dialogue has it do.
type BindingAgent interface {
	// Dial connects to it, whatever the address.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
	// Got gives the requests that it got, Want those of the dialogue.
	Got() []string
	Want() []string
	// Said gives how it says the errors of the dialogue.
	Said() []Said
	// Close ends it, and waits.
	Close()
}

// Said is how an error of JSON-RPC is said in another binding: the code to be
// read out of it, the details beside it, the status of HTTP or 0.
type Said struct {
	From    *RPCError
	Code    int64
	Details []json.RawMessage
	HTTP    int
}

// Played is which of the dialogues of a suite were played over a binding, which
// are its own, which [Run] plays, and why the others were not, by their names.
type Played struct {
	Dialogues   int
	Played, Own []string
	Unsaid      map[string]*UnsayableError
}

// RunBinding plays those dialogues of the suite over b that it can express: of
// each the agent of JSON-RPC tells which requests it gets, requests and answers
// are translated, and the same must come of them.
func RunBinding(t *testing.T, s Suite, b Binding) Played {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues in %s: %v", s.Dir, err)
	}
	p := Played{Unsaid: map[string]*UnsayableError{}, Dialogues: len(files)}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := s.playOver(t, b, file)
				if errors.Is(err, errOwn) {
					p.Own = append(p.Own, name)
					return
				}
				if u, ok := errors.AsType[*UnsayableError](err); ok {
					p.Unsaid[name] = u
					t.Logf("has no counterpart over %s: %v", b.Name, u)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				p.Played = append(p.Played, name)
			})
		})
	}
	p.report(t, b.Name)
	return p
}

// errOwn says of a dialogue that it is of the binding already.
var errOwn = errors.New("it is one of the binding's own")

// report prints the counts.
func (p *Played) report(t *testing.T, over string) {
	t.Helper()
	rules := map[string]int{}
	for _, u := range p.Unsaid {
		rules[u.Rule]++
	}
	t.Logf("%s: %d of %d dialogues played; %d are its own", over, len(p.Played), p.Dialogues, len(p.Own))
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		t.Logf("%s: %d not played: %s", over, rules[rule], rule)
	}
}

// playOver plays one dialogue over b.
func (s Suite) playOver(t *testing.T, b Binding, file string) error {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		return err
	}
	d, err := parse(archive)
	if err != nil {
		return err
	}
	turns, want, err := s.begin(t, b, d)
	if err != nil {
		return err
	}
	peer, err := b.Agent(turns)
	if err != nil {
		return err
	}
	t.Cleanup(peer.Close)
	if err := d.move(b); err != nil {
		return err
	}
	rec, dial := &recorder{}, peer.Dial
	if len(d.scripts) > 0 && d.scripts[0].fault == FaultRefuse {
		dial = (&agent{scripts: d.scripts}).Dial
	}
	got := rec.outcome(t, d, s.start(t, rec, dial))
	rec.checkLines(t, d)
	if d.secret != "" && strings.Contains(got, d.secret) {
		t.Errorf("the credential is in the outcome:\n%s", got)
	}
	if diff := cmp.Diff(peer.Want(), peer.Got()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	v := view{b: b, said: peer.Said(), foreign: slices.ContainsFunc(turns, func(t Turn) bool { return t.Foreign != "" })}
	if diff := cmp.Diff(v.of(t, want, true), v.of(t, got, false)); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	return nil
}

// begin plays d over JSON-RPC, and gives what its agent was asked and does, and
// what must come of it.
func (s Suite) begin(t *testing.T, b Binding, d *dialogue) (turns []Turn, want string, err error) {
	t.Helper()
	switch config := string(d.agent.ProtocolConfig); {
	case strings.Contains(config, `"binding": "`+b.Name+`"`):
		return nil, "", errOwn
	case strings.Contains(config, `"binding"`):
		return nil, "", &UnsayableError{Rule: "it is about another binding"}
	case b.Raise && (d.may10() || strings.Contains(config, `"a2a"`) || len(d.agent.Detected) > 0):
		return nil, "", &UnsayableError{Rule: "it names a dialect"}
	case b.Raise:
		d.raise()
	case !d.may10():
		return nil, "", &UnsayableError{Rule: Only10}
	}
	a, rec := &agent{scripts: d.scripts}, &recorder{}
	t.Cleanup(a.close)
	want = rec.outcome(t, d, s.start(t, rec, a.Dial))
	if !b.Raise {
		want = d.section("outcome.json")
	}
	turns, err = d.turns(a.got())
	if err == nil && len(turns) == 0 && !d.speaks10() {
		err = &UnsayableError{Rule: Only10}
	}
	return turns, want, err
}

// raise makes a dialogue that names no dialect one of A2A 1.0.
func (d *dialogue) raise() {
	config := strings.TrimRight(string(d.agent.ProtocolConfig), " \n}")
	switch config {
	case "":
		config = "{"
	case "{":
	default:
		config += ","
	}
	d.agent.ProtocolConfig = json.RawMessage(config + `"a2a":"1.0"}`)
}

// start makes the adapter of one dialogue over an exchange that dials.
func (s Suite) start(t *testing.T, rec *recorder, dial func(context.Context, string, string) (net.Conn, error)) bridge.Adapter {
	t.Helper()
	now := func() time.Time { return time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC) }
	x := bridge.NewExchange(bridge.ExchangeConfig{
		DialContext: dial, Now: now, Limits: bridge.ExchangeLimits{MaxResponse: maxResponse}, UserAgent: "parley/test",
	})
	t.Cleanup(x.Close)
	adapter := s.New(x, slog.New(rec), rec)
	if c, ok := adapter.(interface{ Close() }); ok {
		t.Cleanup(c.Close)
	}
	return adapter
}

// Only10 is the rule that keeps the dialogues of A2A 0.3 out of other bindings.
const Only10 = "it speaks A2A 0.3, which Parley has over JSON-RPC only"

// speaks10 says whether the agent's record names A2A 1.0.
func (d *dialogue) speaks10() bool {
	var config, detected map[string]any
	_ = json.Unmarshal(d.agent.ProtocolConfig, &config) // or it names nothing
	_ = json.Unmarshal(d.agent.Detected, &detected)
	return config["a2a"] == "1.0" || detected["version"] == "1.0"
}

// may10 says whether anything of the dialogue could be spoken in A2A 1.0: the
// record or the task names it, or the agent is asked.
func (d *dialogue) may10() bool {
	return d.speaks10() || d.at.Version == "1.0" || bytes.Contains(d.agent.ProtocolConfig, []byte(`"auto"`))
}

// move makes d about an agent over b: its record, and where its task is.
func (d *dialogue) move(b Binding) error {
	var err error
	place := func(u string) string {
		to, why := b.place(u)
		err = errors.Join(err, why)
		return to
	}
	d.agent.URL = place(d.agent.URL)
	d.agent.ProtocolConfig = placed(d.agent.ProtocolConfig, place)
	d.agent.Detected = placed(d.agent.Detected, place)
	switch config := strings.TrimRight(string(d.agent.ProtocolConfig), " \n}"); {
	case len(d.agent.Detected) > 0:
		// Where nothing was found out, the record has to say it.
		d.agent.Detected = json.RawMessage(strings.ReplaceAll(string(d.agent.Detected), `"binding": "JSONRPC"`, `"binding": "`+b.Name+`"`))
	default:
		d.agent.ProtocolConfig = json.RawMessage(config + `,"binding":"` + b.Name + `"}`)
	}
	d.at.Endpoint = movedReference(b, d.at.Endpoint)
	d.reply.At = d.at
	return err
}

// place gives where over b an agent is.
func (b Binding) place(u string) (string, error) {
	if b.Place == nil || u == "" {
		return u, nil
	}
	return b.Place(u)
}

// placed puts what place says in the place of every URL that is a member url.
func placed(record json.RawMessage, place func(string) string) json.RawMessage {
	return regexp.MustCompile(`("url": ")([^"]+)`).ReplaceAllFunc(record, func(m []byte) []byte {
		name, u := string(m[:len(`"url": "`)]), string(m[len(`"url": "`):])
		return []byte(name + place(u))
	})
}

// movedReference is a reference to an agent's task at its place over b.
func movedReference(b Binding, reference string) string {
	v, err := url.ParseQuery(reference)
	if err != nil || reference == "" {
		return reference
	}
	if v.Get("binding") == "JSONRPC" {
		v.Set("binding", b.Name)
	}
	if u, err := b.place(v.Get("url")); u != "" && err == nil {
		v.Set("url", u)
	}
	return v.Encode()
}

// view makes outcomes of different bindings comparable.
type view struct {
	b    Binding
	said []Said
	// foreign: what the agent answered is nobody's JSON-RPC, and stays.
	foreign bool
}

// of reads an outcome. Of that of the dialogue, which is the one of JSON-RPC, the
// names of its binding and its ways to say errors are replaced.
func (v view) of(t *testing.T, outcome string, original bool) any {
	t.Helper()
	var all map[string]any
	dec := json.NewDecoder(strings.NewReader(outcome))
	dec.UseNumber()
	if err := dec.Decode(&all); err != nil {
		t.Fatalf("the outcome is not JSON: %v", err)
	}
	v.plain(all)
	// An error that comes with a status of its own is told as what the exchange
	// came to, and not as a translation of a response.
	for member, line := range map[string]string{"observed": "jsonrpc-2.0 response translated", "log": "debug protocol_response_translation"} {
		lines, _ := all[member].([]any)
		all[member] = slices.DeleteFunc(slices.Clone(lines), func(l any) bool { return l == line })
	}
	outcomes := []map[string]any{all}
	if stream, ok := all["stream"].(map[string]any); ok {
		outcomes = append(outcomes, stream)
	}
	for _, o := range outcomes {
		if reference, ok := o["endpoint"].(string); ok && original {
			o["endpoint"] = movedReference(v.b, reference)
		}
		if e, ok := o["error"].(map[string]any); ok && original {
			details, _ := e["details"].(map[string]any)
			v.resay(e, details)
			if body, ok := details["body"].(string); ok && !v.foreign {
				details["body"] = resultIn(body)
			}
		}
	}
	return all
}

// plain makes what is within x comparable: texts without the places and the
// sizes of requests, and numbers as floats, as far as floats can hold them.
func (v view) plain(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for name, member := range x {
			x[name] = v.plain(member)
		}
	case []any:
		for i, one := range x {
			x[i] = v.plain(one)
		}
	case json.Number:
		if f, err := x.Float64(); err == nil {
			return f
		}
	case string:
		x = regexp.MustCompile(`(POST|GET) http\S+: |gRPC \w+ to \S+: `).ReplaceAllString(x, "")
		x = regexp.MustCompile(`the request has \d+ bytes`).ReplaceAllString(x, "the request has some bytes")
		if v.b.Text != nil {
			return v.b.Text(x)
		}
		return x
	}
	return x
}

// resultIn is the result in a response of JSON-RPC, or else what it is.
func resultIn(body string) string {
	var r struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Result == nil {
		return body
	}
	return string(r.Result)
}

// resay puts into an error of the bridge what an agent says over the binding
// instead of an error of JSON-RPC.
func (v view) resay(e, details map[string]any) {
	for _, s := range v.said {
		code, _ := details["code"].(float64)
		if int64(code) != s.From.Code || details["message"] != s.From.Message {
			continue
		}
		e["message"] = strings.Replace(e["message"].(string),
			fmt.Sprintf("JSON-RPC Error %d:", s.From.Code), fmt.Sprintf("%s Error %d:", v.b.Label, s.Code), 1)
		details["code"] = float64(s.Code)
		delete(details, "data")
		delete(details, "status")
		if s.HTTP != 0 {
			details["status"] = float64(s.HTTP)
		}
		if len(s.Details) > 0 {
			var data []any
			for _, one := range s.Details {
				var d any
				_ = json.Unmarshal(one, &d) // made of valid JSON
				data = append(data, d)
			}
			details["data"] = data
		}
		return
	}
}
