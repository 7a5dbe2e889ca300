"""Attribution: the traces and notes that say which lines an agent wrote, and the blame that reads them."""
