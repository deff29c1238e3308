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
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
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
	if _, err = file.WriteAt(lines, end); err == nil {
		err = file.Sync()
	}
	if err != nil {
		return errors.Join(err, file.Truncate(end))
	}
	if end > 0 {
		return nil
	}
	return syncDir(f.Dir) // the file may be new
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

// syncDir keeps the name of a new file.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
