"""What a team needs beside keys: codes by which people join, and the lease of the one who serves them."""
