package registry

import (
	"context"
	"fmt"
	"reflect"

	"github.com/parley-project/parley"
)

// Declare makes the records of the agents that specs name equal to specs: what
// a spec does not say gets its default, a deleted agent comes back, an inactive
// one stays inactive, and one whose record cannot be read is stored anew. Agents that no
// spec names are left alone. Doing it again
// changes nothing.
//
// All specs are checked before the first is stored. The error is a
// [*parley.Error]: code invalid with every fault in Details as [{path, code,
// detail}] and nothing stored, or that of the store, with the counts telling
// how far it came; Declare then can simply be repeated.
func (r *Registry) Declare(ctx context.Context, specs []parley.AgentSpec) (added, updated, unchanged int, err error) {
	if err := r.checkAll(ctx, specs); err != nil {
		return 0, 0, 0, err
	}
	for _, spec := range specs {
		did, err := r.declare(ctx, spec)
		if err != nil {
			return added, updated, unchanged, err
		}
		switch did {
		case didAdd:
			added++
		case didUpdate:
			updated++
		default:
			unchanged++
		}
	}
	return added, updated, unchanged, nil
}

type declared int

const (
	didNothing declared = iota
	didAdd
	didUpdate
)

func (r *Registry) checkAll(ctx context.Context, specs []parley.AgentSpec) error {
	var all faults
	names := map[string]int{}
	for i, spec := range specs {
		var f faults
		name := value(spec.Name)
		checkName(name, &f)
		if first, twice := names[name]; twice {
			f.add("name", faultDuplicate, "agents[%d] has the same name", first)
		} else {
			names[name] = i
		}
		var before parley.Agent
		if p := spec.OutcomeUnknown; p != nil && *p == parley.OutcomeLookup {
			// It may have been stored before that was refused. A store that fails now
			// fails below, too.
			if stored, err := r.cfg.Store.Agent(ctx, name); err == nil || stored.Unreadable {
				before.Protocol, before.OutcomeUnknown = stored.Protocol, stored.OutcomeUnknown
			}
		}
		r.lay(before, complete(spec), &f)
		for _, x := range f {
			x.Path = fmt.Sprintf("agents[%d].%s", i, x.Path)
			all = append(all, x)
		}
	}
	return all.err("list of agents")
}

// declare makes one record equal to spec, and makes it if there is none.
func (r *Registry) declare(ctx context.Context, spec parley.AgentSpec) (declared, error) {
	did, err := r.redeclare(ctx, spec)
	if parley.CodeOf(err) != parley.CodeNotFound {
		return did, err
	}
	agent, err := r.build(spec)
	if err != nil {
		return didNothing, err
	}
	_, err = r.create(ctx, agent)
	switch {
	case parley.CodeOf(err) == parley.CodeConflict: // another server that starts now was first
		return r.redeclare(ctx, spec)
	case err != nil:
		return didNothing, err
	}
	return didAdd, nil
}

// redeclare makes a record that is there equal to spec.
func (r *Registry) redeclare(ctx context.Context, spec parley.AgentSpec) (declared, error) {
	_, did, err := r.change(ctx, value(spec.Name), spec.By, true, func(stored parley.Agent) (parley.Agent, bool, error) {
		wanted := r.reuse(spec, stored)
		if stored.Status == parley.AgentDeleted && wanted.Status == nil {
			wanted.Status = new(parley.AgentActive)
		}
		agent, err := r.merge(stored, complete(wanted), nil)
		agent.Unreadable = false // the declaration says everything that may be so
		return agent, !same(stored, agent), err
	})
	if !did {
		return didNothing, err
	}
	return didUpdate, nil
}

// same reports whether two versions of a record say the same.
func same(a, b parley.Agent) bool {
	for _, x := range []*parley.Agent{&a, &b} {
		x.Credential, x.Resolved = parley.Secret{}, nil
		if len(x.ProtocolConfig) == 0 {
			x.ProtocolConfig = nil
		}
	}
	return reflect.DeepEqual(a, b)
}
