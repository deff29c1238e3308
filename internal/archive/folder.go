package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-project/parley"
)

// Folder keeps runs as lines in files, one file for each day and process. One
// goroutine at a time may use it.
type Folder struct {
	// Dir is the folder; it is made, with mode 0700, if it is not there.
	Dir string
	// Name tells this process from others that write into the same folder, "" where
	// there are none.
	Name string

	// sync makes the names in a folder durable; nil is syncDir.
	sync func(dir string) error
}

// File is the name of the file of a day.
func (f Folder) File(day time.Time) string {
	name := "runs-" + day.UTC().Format(time.DateOnly)
	if f.Name != "" {
		name += "-" + strings.Map(plainName, f.Name)
	}
	return filepath.Join(f.Dir, name+".ndjson")
}

// plainName keeps what every system takes in the name of a file.
func plainName(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
		return r
	}
	return '-'
}

// Append writes whole lines to the file of a day, mode 0600. When it returns without
// an error they are on the disk; after an error none of them need be, and no half of
// one is: what a crash has left of a line is removed first.
func (f Folder) Append(day time.Time, lines []byte) (err error) {
	if len(lines) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = parley.Errorf(parley.CodeUnavailable, "the archive cannot be written: %w", err)
		}
	}()
	if lines[len(lines)-1] != '\n' {
		return errors.New("half a line was to be written")
	}
	made, err := makeFolder(f.Dir)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.File(day), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	end, err := wholeLines(file)
	if err != nil {
		return err
	}
	if end == 0 { // it may be new: its name is durable before it has lines
		if err := f.keepNames(made); err != nil {
			return err
		}
	}
	if _, err = file.WriteAt(lines, end); err == nil {
		err = file.Sync()
	}
	if err != nil {
		return errors.Join(err, file.Truncate(end))
	}
	return nil
}

// makeFolder makes a folder and those above it that are not there, and gives how many.
func makeFolder(dir string) (made int, err error) {
	for above := dir; ; above = filepath.Dir(above) {
		if _, err := os.Stat(above); !errors.Is(err, os.ErrNotExist) || above == filepath.Dir(above) {
			return made, os.MkdirAll(dir, 0o700)
		}
		made++
	}
}

// keepNames makes durable the name of a new file, and those of the folders that lead to
// it: somebody may have made them, and have died before that. Of those above what was
// made now not all need be ours to look at.
func (f Folder) keepNames(made int) error {
	sync := f.sync
	if sync == nil {
		sync = syncDir
	}
	dir, err := filepath.Abs(f.Dir)
	if err != nil {
		return err
	}
	for above := 0; ; above++ {
		if err := sync(dir); err != nil && above <= made {
			return err
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// wholeLines removes what a crash has left behind the last line end, and gives the
// length of the rest.
func wholeLines(file *os.File) (int64, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	end := size
	for buf := make([]byte, 64<<10); end > 0; {
		n := min(end, int64(len(buf)))
		if _, err := file.ReadAt(buf[:n], end-n); err != nil {
			return 0, fmt.Errorf("%s: %w", file.Name(), err)
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			end += int64(i+1) - n
			break
		}
		end -= n
	}
	if end < size {
		err = file.Truncate(end)
	}
	return end, err
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
