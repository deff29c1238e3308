package zonetest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/execution"
	"github.com/parley-project/parley/internal/zone/zonetest"
)

// TestZN2_SuiteFitsSchemas holds the served schemas to the suite: the params of every
// request that is taken are valid, those that are refused for what is missing or of
// a wrong type are not, and so is every result and error.
func TestZN2_SuiteFitsSchemas(t *testing.T) {
	schemas := map[zone.Profile]map[string]*jsonschema.Schema{zone.ProfileStrict: {}, zone.ProfileRelaxed: {}}
	for profile := range schemas {
		for name, text := range zone.Schemas(profile) {
			c := jsonschema.NewCompiler()
			if err := c.AddResource(name, value(t, text)); err != nil {
				t.Fatal(err)
			}
			schemas[profile][name] = c.MustCompile(name)
		}
	}
	taken, refused := 0, 0
	for _, c := range zonetest.Cases() {
		profile := c.Profile
		if profile == "" {
			profile = zone.ProfileRelaxed
		}
		rig := zonetest.NewRig(func(cfg *execution.Config) {
			cfg.Profile, cfg.MaxBody, cfg.SyncLimit = profile, 1<<20, 20*time.Millisecond
		})
		for i, s := range c.Steps {
			got, _, err := zonetest.Memory(rig.Zone.Handler()).Call(t.Context(), []byte(s.Send), zone.Meta{})
			if err != nil {
				t.Fatal(err)
			}
			var request struct {
				Method string
				Params json.RawMessage
			}
			var response struct {
				Result, Error json.RawMessage
			}
			if err := json.Unmarshal(got, &response); err != nil {
				t.Fatal(err)
			}
			if response.Error != nil {
				if err := schemas[profile]["error"].Validate(value(t, response.Error)); err != nil {
					t.Errorf("%s, step %d: %v", c.Name, i+1, err)
				}
			}
			if json.Unmarshal([]byte(s.Send), &request) != nil || request.Params == nil {
				continue
			}
			params := schemas[profile][request.Method]
			switch {
			case response.Result != nil:
				if err := schemas[profile][request.Method+".result"].Validate(value(t, response.Result)); err != nil {
					t.Errorf("%s, step %d: %v: %s", c.Name, i+1, err, response.Result)
				}
				if params != nil {
					taken++
					if err := params.Validate(value(t, request.Params)); err != nil {
						t.Errorf("%s, step %d: %v", c.Name, i+1, err)
					}
				}
			case params != nil && (bytes.Contains(got, []byte(`"missing":`)) || bytes.Contains(got, []byte(`"field":`)) && !bytes.Contains(got, []byte("spelled"))):
				refused++
				if params.Validate(value(t, request.Params)) == nil {
					t.Errorf("%s, step %d: the schema takes %s", c.Name, i+1, request.Params)
				}
			}
		}
	}
	if taken < 50 || refused < 20 {
		t.Errorf("%d requests were taken and %d refused", taken, refused)
	}
}

func value(t *testing.T, text []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestZN5_ClientAndZone has a Client of each profile ask a real zone: an answer, one
// that comes later, and failures of every reason.
func TestZN5_ClientAndZone(t *testing.T) {
	for _, profile := range []zone.Profile{zone.ProfileStrict, zone.ProfileRelaxed} {
		rig := zonetest.NewRig(func(c *execution.Config) {
			c.Profile, c.SyncLimit, c.Card = profile, 20*time.Millisecond, json.RawMessage(zonetest.Card)
		})
		ids := zonetest.IDs()
		c := zone.NewClient(zone.ClientConfig{Transport: zonetest.Memory(rig.Zone.Handler()), Profile: profile, NewID: ids})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ask := func(text string) (zone.Result, error) {
			res, _, err := c.Ask(ctx, zone.Call{ID: ids(), Task: zone.Task{Text: text, Channel: "C1", BotToken: zonetest.Secret(), CorrelationID: "c-1"}})
			return res, err
		}
		if res, err := ask(`give {"text":"hi","n":1}`); err != nil || res.ResponseText != "hi" || string(res.More["n"]) != "1" || res.CorrelationID != "c-1" {
			t.Errorf("%+v, %v", res, err)
		}
		for text, reason := range map[string]zone.Reason{
			"fail": zone.ReasonTaskFailed, "cancel": zone.ReasonCancelled, "time out": zone.ReasonTimeout, "panic": zone.ReasonInternal,
			"overload": zone.ReasonOverloaded, "stop": zone.ReasonStopping, "refuse": zone.ReasonInvalidParams, " ": zone.ReasonInvalidParams,
		} {
			_, err := ask(text)
			if fault, ok := err.(*zone.Error); !ok || fault.Reason != reason {
				t.Errorf("%s: %v", text, err)
			}
		}
		res, err := ask("later hello")
		if err != nil || res.Status != zone.StatusAccepted || res.PollAfterMS != 2000 {
			t.Fatalf("%+v, %v", res, err)
		}
		for _, want := range []zone.Status{zone.StatusRunning, zone.StatusCompleted} {
			async, _, err := c.Fetch(ctx, zone.Query{TaskID: res.TaskID}, zone.Meta{})
			if err != nil || async.Status != want || async.Result != nil && async.Result.ResponseText != "hello" {
				t.Errorf("%+v, %v", async, err)
			}
			rig.Work.Finish()
		}
		if _, _, err := c.Fetch(ctx, zone.Query{TaskID: "x"}, zone.Meta{}); err == nil || err.(*zone.Error).Reason != zone.ReasonUnknownTask {
			t.Errorf("a task that is none: %v", err)
		}
		if card, _, err := c.Card(ctx, zone.Meta{}); err != nil || string(card) != zonetest.Card {
			t.Errorf("%s, %v", card, err)
		}
		if bytes.Contains([]byte(rig.Log.String()), []byte(zonetest.Token)) {
			t.Error("the token is in the log")
		}
	}
}

// TestZN5_OutputsOfAnyShape: whatever stands beside the text of an output, a Client reads
// the text: what it would have to refuse is not sent.
func TestZN5_OutputsOfAnyShape(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	for output, more := range map[string]string{
		`{"text":"hi","n":1.50,"s":"a"}`:                 `{"n":1.50,"s":"a"}`,
		`{"text":"hi","n":1,"Status":"x"}`:               `{"n":1}`,
		`{"text":"hi","n":1,"TASK_ID":7}`:                `{"n":1}`,
		`{"text":"hi","n":1,"twice":[{"a":1,"a":2}]}`:    `{"n":1}`,
		`{"text":"hi","n":1,"surrogate":"\ud83d"}`:       `{"n":1}`,
		`{"text":"hi","n":1,"deep":` + deep + `}`:        `{"n":1}`,
		`{"text":"hi","text":"hi","n":1}`:                `{"n":1}`,
		`{"file_artifact":{"a":1,"a":2},"text":"hi"}`:    `null`,
		`{"text":"hi","status":5,"bot_token":"x-token"}`: `null`,
	} {
		rig := zonetest.NewRig(nil)
		ids := zonetest.IDs()
		c := zone.NewClient(zone.ClientConfig{Transport: zonetest.Memory(rig.Zone.Handler()), Profile: zone.ProfileRelaxed, NewID: ids})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		id := ids()
		res, _, err := c.Ask(ctx, zone.Call{ID: id, Task: zone.Task{Text: "give " + output}})
		if got, _ := json.Marshal(res.More); err != nil || res.ResponseText != "hi" || string(got) != more {
			t.Errorf("%.80s: %q with %s, %v; want %s", output, res.ResponseText, got, err, more)
		}
		async, _, err := c.Fetch(ctx, zone.Query{TaskID: id}, zone.Meta{})
		if err != nil || async.Result == nil || async.Result.ResponseText != "hi" {
			t.Errorf("%.80s, later: %+v, %v", output, async, err)
		}
	}
}
