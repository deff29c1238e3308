package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// Detector finds out how agents are called, without giving them work.
type Detector interface {
	// Detect says how an agent is called. It may remember what it found. The
	// agent may lack an id and a name, and a protocol that is not known yet.
	// The error is a [*parley.Error]: agent_unavailable, agent_rejected, invalid.
	Detect(context.Context, parley.Agent) (parley.Detection, error)
	// Refresh is Detect without trusting what is remembered.
	Refresh(context.Context, parley.Agent) (parley.Detection, error)
}

// Detect finds out how the agent that spec describes is called, and stores
// nothing. Spec needs a URL only; without one it is about the agent of its Name,
// as the record and what spec changes in it say, and the card is fetched anew.
// What ProtocolConfig pins is kept.
//
// The error is a [*parley.Error]: invalid with every fault as for
// [Registry.Add], not_found, agent_unavailable or agent_rejected with the
// explanation so far in Details, or unavailable if nothing can be found out here.
func (r *Registry) Detect(ctx context.Context, spec parley.AgentSpec) (parley.Detection, error) {
	var before parley.Agent
	known := spec.URL == nil && spec.Name != nil
	if known {
		var err error
		if before, err = r.cfg.Store.Agent(ctx, *spec.Name); err != nil {
			return parley.Detection{}, err
		}
	}
	if spec.Protocol == nil && before.Protocol != parley.ProtocolJSONRPC {
		spec.Protocol = new(parley.ProtocolAuto)
	}
	if !known {
		spec = complete(spec)
	}
	agent, err := r.undetected(before, spec)
	if err != nil {
		return parley.Detection{}, err
	}
	return r.find(ctx, agent, known)
}

// undetected lays spec over agent for a detection. Pins are those of the
// protocol that has some.
func (r *Registry) undetected(agent parley.Agent, spec parley.AgentSpec) (parley.Agent, error) {
	unknown := spec.Protocol != nil && *spec.Protocol == parley.ProtocolAuto
	if unknown {
		spec.Protocol = new(parley.ProtocolJSONRPC)
	}
	agent, err := r.merge(agent, spec, nil)
	if unknown || agent.Protocol == parley.ProtocolSimpleA2A {
		agent.Protocol = ""
	}
	return agent, err
}

// find asks the detector about agent, with its credentials.
func (r *Registry) find(ctx context.Context, agent parley.Agent, anew bool) (parley.Detection, error) {
	if r.cfg.Detector == nil {
		return parley.Detection{}, parley.Errorf(parley.CodeUnavailable, "this server cannot find out about agents; name the protocol: %s", strings.Join(r.protocols, ", "))
	}
	agent, err := r.resolve(agent)
	if err != nil {
		e := parley.Errorf(parley.CodeAgentUnavailable, "the agent cannot be asked without its credential: %s", messageOf(err))
		e.Agent = agent.Name
		return parley.Detection{}, e
	}
	ctx, cancel := context.WithTimeout(ctx, maxDetect)
	defer cancel()
	if anew {
		return r.cfg.Detector.Refresh(ctx, agent)
	}
	return r.cfg.Detector.Detect(ctx, agent)
}

// adding settles the protocol "auto" of an agent that is added. It gives spec as
// it is stored and what was found, nil if nobody asked.
func (r *Registry) adding(ctx context.Context, spec parley.AgentSpec) (parley.AgentSpec, json.RawMessage, error) {
	if value(spec.Protocol) != parley.ProtocolAuto {
		return spec, nil, nil
	}
	var f faults
	if checkName(value(spec.Name), &f); len(f) > 0 {
		return spec, nil, f.err("agent")
	}
	fill(&spec.URL, "")
	found, err := r.Detect(ctx, spec)
	if err != nil {
		return spec, nil, err
	}
	if found.CardURL != "" && found.CardURL == normalURL(value(spec.URL), new(faults)) && strings.HasPrefix(found.URL, "http") {
		// The card's own address was given; the agent is somewhere else.
		spec.URL = &found.URL
	}
	spec.Protocol = &found.Protocol
	return spec, stored(found), nil
}

// changing settles the protocol "auto" of an agent that is changed, and finds
// out anew about one that was found out about before and moves.
func (r *Registry) changing(ctx context.Context, idOrName string, spec parley.AgentSpec) (parley.AgentSpec, json.RawMessage, error) {
	auto := value(spec.Protocol) == parley.ProtocolAuto
	if !auto && spec.URL == nil && spec.ProtocolConfig == nil {
		return spec, nil, nil
	}
	before, err := r.cfg.Store.Agent(ctx, idOrName)
	if err != nil {
		return spec, nil, err
	}
	agent, err := r.undetected(before, spec)
	if err != nil {
		return spec, nil, err
	}
	if !auto && (spec.Protocol != nil || before.Detected == nil || agent.Detected != nil) {
		return spec, nil, nil
	}
	found, err := r.find(ctx, agent, auto)
	if e, ok := err.(*parley.Error); ok && !auto { //nolint:errorlint // made by find
		c := *e
		c.Message += "; to change the agent all the same, give its protocol too"
		err = &c
	}
	if err != nil {
		return spec, nil, err
	}
	spec.Protocol = &found.Protocol
	return spec, stored(found), nil
}

func stored(d parley.Detection) json.RawMessage {
	b, err := json.Marshal(d)
	if err != nil {
		return nil // cannot happen: it is plain data
	}
	return b
}

// moved says that what was found out about before need not hold for after.
func moved(before, after parley.Agent) bool {
	return before.URL != after.URL || before.Protocol != after.Protocol || !bytes.Equal(before.ProtocolConfig, after.ProtocolConfig)
}

// Check looks at an agent anew and says what is not as its record says: the
// card is fetched again, and the agent's health is looked at. An agent that was
// found out about before is called by what was found now, unless it speaks
// another protocol now: that is for the operator to change. What is stored is a
// change by whom by names.
//
// The error is a [*parley.Error] of code not_found, or unavailable if nothing can
// be asked here. What the agent does wrong is in the result.
func (r *Registry) Check(ctx context.Context, idOrName, by string) (parley.AgentCheck, error) {
	var out parley.AgentCheck
	agent, err := r.cfg.Store.Agent(ctx, idOrName)
	if err != nil {
		return out, err
	}
	if out.Health, err = r.Health(ctx, agent.ID); err != nil {
		return out, err
	}
	if agent.Status == parley.AgentDeleted || agent.Protocol != parley.ProtocolSimpleA2A && agent.Protocol != parley.ProtocolJSONRPC {
		return out, nil // nobody calls it, or an adapter that has no cards
	}
	asked := agent
	if asked.Protocol == parley.ProtocolSimpleA2A {
		asked.Protocol = "" // else it would not be told from JSON-RPC
	}
	found, err := r.find(ctx, asked, true)
	if err != nil {
		e, ok := err.(*parley.Error) //nolint:errorlint // made by find
		if !ok || e.Code == parley.CodeUnavailable {
			return out, err
		}
		out.Failure = e
		return out, nil
	}
	out.Found = &found
	before, had := parley.ReadDetection(agent.Detected)
	if !had {
		before = parley.Detection{Protocol: agent.Protocol}
		if agent.Protocol == found.Protocol {
			before = found
		}
	}
	out.Changes = differences(before, found)
	if had && found.Protocol == agent.Protocol && !alike(before, found) {
		out.Stored, err = r.keep(ctx, agent, found, by)
	}
	return out, err
}

// keep stores what was found about an agent that has not changed meanwhile, as a
// change by whom by names.
func (r *Registry) keep(ctx context.Context, seen parley.Agent, found parley.Detection, by string) (bool, error) {
	_, did, err := r.change(ctx, seen.ID, by, false, func(agent parley.Agent) (parley.Agent, bool, error) {
		does := !moved(seen, agent) && agent.Status != parley.AgentDeleted
		agent.Detected = stored(found)
		return agent, does, nil
	})
	return did, err
}

// alike says that two detections say the same.
func alike(a, b parley.Detection) bool {
	a.At, a.Explanation = b.At, b.Explanation
	return reflect.DeepEqual(plain(a), plain(b))
}

// plain is d as it comes back from a record.
func plain(d parley.Detection) (out parley.Detection) {
	_ = json.Unmarshal(stored(d), &out) // it is JSON
	return out
}

// differences names what changed, one member a line.
func differences(before, now parley.Detection) []string {
	before, now = plain(before), plain(now)
	var out []string
	say := func(what string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			out = append(out, fmt.Sprintf("%s: %s → %s", what, shownValue(was), shownValue(is)))
		}
	}
	say("protocol", before.Protocol, now.Protocol)
	if before.URL == "" && len(out) > 0 {
		return out // nothing else was known
	}
	say("url", before.URL, now.URL)
	say("binding", before.Binding, now.Binding)
	say("version", before.Version, now.Version)
	say("tenant", before.Tenant, now.Tenant)
	say("streaming", before.Streaming, now.Streaming)
	say("push", before.Push, now.Push)
	say("input modes", before.InputModes, now.InputModes)
	say("output modes", before.OutputModes, now.OutputModes)
	say("name", before.Name, now.Name)
	say("agent version", before.AgentVersion, now.AgentVersion)
	say("skills", before.Skills, now.Skills)
	say("card", before.CardURL, now.CardURL)
	say("signature", before.Signature, now.Signature)
	say("signed with key", before.SignatureKey, now.SignatureKey)
	if !reflect.DeepEqual(before.Auth, now.Auth) {
		out = append(out, "what it asks for as authentication has changed")
	}
	if len(out) == 0 && before.CardHash != now.CardHash {
		out = append(out, "the card has changed in what does not concern calls")
	}
	return out
}

func shownValue(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "none"
		}
		return shown(v)
	case []string:
		if len(v) == 0 {
			return "none"
		}
		list := make([]string, 0, 8)
		for s := range slices.Values(v[:min(len(v), 8)]) {
			list = append(list, shown(s))
		}
		if len(v) > len(list) {
			list = append(list, "…")
		}
		return strings.Join(list, ", ")
	}
	return fmt.Sprint(v)
}
