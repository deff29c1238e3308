package store

import (
	"context"
	"time"
)

// Process is one that is at work on the database.
type Process struct {
	// ID is its own, Name what people know it by.
	ID, Name string
	// Bus says by what it finds the others, and is compared as it is.
	Bus string
}

// processGone is after how long a process that was not seen is taken for gone.
const processGone = 15 * time.Second

const (
	noteProcess = `INSERT INTO process (id, name, bus, seen_at) VALUES (?, ?, ?, ?)
 ON CONFLICT (id) DO UPDATE SET bus = excluded.bus, seen_at = excluded.seen_at`
	dropProcesses   = `DELETE FROM process WHERE seen_at < ?`
	forgetProcess   = `DELETE FROM process WHERE id = ?`
	selectProcesses = `SELECT id, name, bus FROM process WHERE seen_at >= ? ORDER BY name, id`
)

// NoteProcess notes that a process is at work at that time, which it has to say anew
// within 15 s; those that have not are forgotten. Lazy.
func (db *DB) NoteProcess(ctx context.Context, p Process, at time.Time) error {
	return db.submit(ctx, lazy, func(s *session) error {
		s.at(p.ID)
		if err := s.later(-1, noteProcess, p.ID, p.Name, p.Bus, unixMicro(at)); err != nil {
			return err
		}
		s.at(lastKey)
		return s.later(-1, dropProcesses, unixMicro(at.Add(-processGone)))
	})
}

// ForgetProcess notes that a process is at work no more. Lazy.
func (db *DB) ForgetProcess(ctx context.Context, id string) error {
	return db.submit(ctx, lazy, func(s *session) error {
		s.at(id)
		return s.later(-1, forgetProcess, id)
	})
}

// Processes gives those that are at work at that time, by their names. One of an older
// version says nothing of itself.
func (db *DB) Processes(ctx context.Context, at time.Time) ([]Process, error) {
	var list []Process
	err := db.read(ctx, selectProcesses, func(r *record) error {
		list = append(list, Process{ID: r.str(), Name: r.str(), Bus: r.str()})
		return r.err
	}, unixMicro(at.Add(-processGone)))
	return list, err
}
